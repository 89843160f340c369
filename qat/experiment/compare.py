"""Run a comparison: check it whole, train what is not finished, and write what the report needs."""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml

from qat.experiment.claim import claimed
from qat.experiment.cluster import connect, train_on_cluster, versions_of_workers
from qat.experiment.comparison import Comparison
from qat.experiment.difference import complete
from qat.experiment.display import Display
from qat.experiment.jobs import shared_threads, train_here, train_in_processes
from qat.experiment.options import build, build_trainer, resolve
from qat.experiment.plan import TrainingRun, listing, plan
from qat.names import one_line
from qat.options import BAD_INPUT
from qat.progress import tracked
from qat.training.limits import check_batches
from qat.training.result import SCHEMA, versions
from qat.whole_file import write_whole


class RunsFailedError(Exception):
    """Some runs failed, each named in one of the lines in `args`; the others are finished and kept."""


def compare(
    comparison: Comparison,
    out: str | Path,
    jobs: int = 1,
    dask: str | None = None,
    finish: Callable[[Path], None] | None = None,
) -> None:
    """Train the runs of a comparison that are not finished, each into its folder in `out`.

    All setups of a seed start from equal weights and see equal batches in equal order. A finished run with
    the same options, seed, versions and number of threads is kept, also if another comparison left it there.

    Args:
        comparison: what to run.
        out: the folder, which other comparisons may share.
        jobs: how many runs go on at a time, each in a process with its share of the threads; 0: one on each
            thread. The results are those of one after another with as many threads, bit for bit.
        dask: the address of a Dask scheduler, whose workers then train in place of this machine.
        finish: what to do with the folder at the end, before another comparison may use it: write a report.
            It is called where at least one run is finished, also if others failed.

    Raises:
        ValueError, OSError: an option does not fit, data is missing or damaged, another comparison uses the
            folder, or the scheduler does not answer. Nothing is written then.
        RunsFailedError: a run failed; raised after the others have ended.
        KeyboardInterrupt: stopped with Ctrl-C.
    """
    out = Path(out)
    with shared_threads(jobs) as number, nullcontext() if dask is None else connect(dask) as client:
        runs = plan(comparison, versions_of_workers(client) if client else versions())
        _check(comparison, runs)
        with claimed(out):
            _name_ignored_results(out)
            content = yaml.safe_dump(listing(comparison, runs), sort_keys=False, allow_unicode=True)
            write_whole(out / "comparison.yaml", content)
            todo = [run for run in runs if not run.is_finished(out)]
            display = Display(todo)
            try:
                with display.progress:
                    if client:
                        train_on_cluster(todo, out, display, client)
                    elif number > 1:
                        train_in_processes(todo, out, display, number)
                    else:
                        train_here(todo, out, display)
            except KeyboardInterrupt:
                kept = sum(run.is_finished(out) for run in runs)
                raise KeyboardInterrupt(f"{kept} of {len(runs)} runs are finished and kept") from None
            complete(runs, out, comparison.equal)
            if finish and len(display.failures) < len(runs):
                finish(out)
    if display.failures:
        raise RunsFailedError(*(f"{run}: {why}" for run, why in display.failures.items()))


def _check(comparison: Comparison, runs: list[TrainingRun]) -> None:
    """Refuse what would not run, and fetch the data."""
    prepared: list[dict[str, Any]] = []
    for run in tracked([run for run in runs if run.seed == comparison.seeds[0]], "checking the options"):
        problem = _problem(run.options, prepared)
        if problem:
            of_base = _problem(resolve(comparison.base), prepared) == problem
            raise ValueError(problem if of_base else f"{str(run).rpartition(', seed')[0]}: {problem}")


def _problem(options: dict[str, Any], prepared: list[dict[str, Any]]) -> str:
    """What is wrong with the options of a run, in one line; data that is fine is added to `prepared`."""
    try:
        trainer = build_trainer(options, [])
        classifier, data = build(options, seed=0)
        classifier.load_teacher()
        classifier.load_start()
        if options["data"] not in prepared:
            data.prepare_data()
            data.setup()
            prepared.append(options["data"])
        data.trainer = trainer
        for stage in ("fit", "test"):
            check_batches(trainer, data, stage)
    except BAD_INPUT as error:
        return one_line(error)
    return ""


def _name_ignored_results(out: Path) -> None:
    """Print one line for the results of other schemas, which lie in folders of other names."""
    texts = [path.read_text("utf-8", errors="replace") for path in out.glob("*/result.json")]
    others = "\n".join(text for text in texts if f'"schema": {SCHEMA},' not in text)
    for version, count in Counter(re.findall(r'"qat": "(.*?)"', others)).items():
        print(f"{count} results in {out} are ignored: qat {version} wrote them in another form")
