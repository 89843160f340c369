"""What is shown while the runs of a comparison go on: bars, and a line for each run that ended."""

from typing import Any

from rich.progress import Progress

from qat.experiment.plan import TrainingRun
from qat.progress import of_a_whole


class Display:
    """A bar for all runs, with the time that is left, and one for each run that goes on."""

    def __init__(self, runs: list[TrainingRun]) -> None:
        self.progress = Progress(*of_a_whole(), refresh_per_second=4, disable=not runs)
        self.failures: dict[TrainingRun, str] = {}  # why, in one line
        epochs = {run: run.options["trainer"]["max_epochs"] for run in runs}
        self._all = self.progress.add_task(f"0 of {len(runs)} runs ended", total=sum(epochs.values()))
        self._bars = {
            run: self.progress.add_task(str(run), start=False, total=epochs[run], visible=False)
            for run in runs
        }

    def tell(self, run: TrainingRun, event: str, value: Any = None) -> None:
        """Show an event of a run: begin, advance (epochs), end (test accuracy, 0..1) or fail (reason)."""
        bar = self._bars[run]
        if event == "begin":
            self.progress.start_task(bar)
            self.progress.update(bar, visible=True)
        elif event == "advance":
            self.progress.advance(bar, value)
            self.progress.advance(self._all, value)
        else:
            left = next(task.remaining for task in self.progress.tasks if task.id == bar)
            self.progress.remove_task(bar)
            ended = f"{len(self._bars) - len(self.progress.tasks) + 1} of {len(self._bars)} runs ended"
            self.progress.update(self._all, advance=left, description=ended)
            if event == "fail":
                self.failures[run] = value
            else:
                self.progress.console.print(f"{run}: test accuracy {100 * value:.1f} %")
