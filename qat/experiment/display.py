"""What is seen while the runs of a comparison go on: bars, and a line for each run that ended."""

from collections.abc import Sequence

from rich.progress import Progress, TaskID

from qat.experiment.plan import TrainingRun
from qat.progress import of_a_whole


class Display:
    """Shows the runs that go on and, where several do, the whole with the time that is left.

    Args:
        runs: those that are to be trained.
        several: whether more than one goes on at a time.

    Attributes:
        failures: why a run failed, in one line, by the run.
    """

    def __init__(self, runs: Sequence[TrainingRun], several: bool) -> None:
        self.progress = Progress(*of_a_whole(), refresh_per_second=4)
        self.failures: dict[TrainingRun, str] = {}
        self._several = several
        self._number = len(runs)
        self._begun = self._ended = 0
        self._bars: dict[TrainingRun, TaskID] = {}
        self._done: dict[TrainingRun, float] = {}
        self._whole = self.progress.add_task(self._title(), total=sum(run.epochs for run in runs))

    def begin(self, run: TrainingRun) -> None:
        """A run begins."""
        self._begun += 1
        self._done[run] = 0.0
        if self._several:
            self._bars[run] = self.progress.add_task(str(run), total=run.epochs)
        title = self._title() if self._several else f"run {self._begun} of {self._number}: {run}"
        self.progress.update(self._whole, description=title)

    def advance(self, run: TrainingRun, epochs: float) -> None:
        """A run got on by this part of an epoch."""
        self._done[run] += epochs
        self.progress.advance(self._whole, epochs)
        if run in self._bars:
            self.progress.advance(self._bars[run], epochs)

    def end(self, run: TrainingRun, accuracy: float) -> None:
        """A run ended with this test accuracy, 0..1."""
        self._close(run)
        self.progress.console.print(f"{run}: test accuracy {100 * accuracy:.1f} %")

    def fail(self, run: TrainingRun, why: str) -> None:
        """A run failed."""
        self._close(run)
        self.failures[run] = why

    def _close(self, run: TrainingRun) -> None:
        self._ended += 1
        self.progress.advance(self._whole, run.epochs - self._done.pop(run, 0.0))
        if run in self._bars:
            self.progress.remove_task(self._bars.pop(run))
        if self._several:
            self.progress.update(self._whole, description=self._title())

    def _title(self) -> str:
        return f"{self._ended} of {self._number} runs ended" if self._several else ""
