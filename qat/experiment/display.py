"""What is shown while the runs of a comparison go on: bars, and a line for each run that ended."""

from collections.abc import Sequence

from rich.progress import Progress, TaskID

from qat.experiment.plan import TrainingRun
from qat.progress import of_a_whole


class Display:
    """A bar for the whole, with the time that is left, and one for each run that goes on.

    Args:
        runs: those that are to be trained.

    Attributes:
        failures: why a run failed, in one line, by the run.
    """

    def __init__(self, runs: Sequence[TrainingRun]) -> None:
        self.progress = Progress(*of_a_whole(), refresh_per_second=4, disable=not runs)
        self.failures: dict[TrainingRun, str] = {}
        self._number, self._ended = len(runs), 0
        self._bars: dict[TrainingRun, TaskID] = {}
        self._left: dict[TrainingRun, float] = {run: run.epochs for run in runs}
        self._whole = self.progress.add_task(self._title(), total=sum(self._left.values()))

    def begin(self, run: TrainingRun) -> None:
        """A run begins."""
        self._bars[run] = self.progress.add_task(str(run), total=run.epochs)

    def advance(self, run: TrainingRun, epochs: float) -> None:
        """A run got on by this part of an epoch."""
        self._left[run] -= epochs
        for bar in (self._whole, self._bars[run]):
            self.progress.advance(bar, epochs)

    def end(self, run: TrainingRun, accuracy: float) -> None:
        """A run ended with this test accuracy, 0..1."""
        self._close(run)
        self.progress.console.print(f"{run}: test accuracy {100 * accuracy:.1f} %")

    def fail(self, run: TrainingRun, why: str) -> None:
        """A run failed, for a reason in one line."""
        self._close(run)
        self.failures[run] = why

    def _close(self, run: TrainingRun) -> None:
        self._ended += 1
        self.progress.remove_task(self._bars.pop(run))
        self.progress.update(self._whole, advance=self._left[run], description=self._title())

    def _title(self) -> str:
        return f"{self._ended} of {self._number} runs ended"
