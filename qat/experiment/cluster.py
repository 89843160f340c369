"""Train runs on the workers of a Dask scheduler."""

import asyncio
import json
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from qat.experiment.display import Display
from qat.experiment.plan import FILES, TrainingRun
from qat.experiment.run import train
from qat.names import one_line
from qat.training.result import versions
from qat.whole_file import write_whole

if TYPE_CHECKING:
    from distributed import Client

TIMEOUT = 10  # seconds that an address has to answer
_ONE_AT_A_TIME = threading.Lock()  # torch's random generators are those of the process, not of a thread


def connect(address: str) -> "Client":
    """A client of the Dask scheduler at an address; a ValueError if there is none."""
    try:
        from distributed import Client
        from distributed.comm import core
    except ImportError as error:
        raise ValueError("dask needs the package distributed: pip install 'qat[cluster]'") from error

    async def greet() -> None:
        await (await core.connect(address, timeout=TIMEOUT)).close()

    start = time.monotonic()
    try:
        # A Client that fails to connect prints tracebacks when it is deleted. The timeout of connect does not
        # hold for a server that says nothing.
        asyncio.run(asyncio.wait_for(greet(), TIMEOUT))
    except Exception as error:  # whatever another kind of server makes of the greeting
        rule = "dask must be the address of a scheduler, such as tcp://host:8786"
        silent = isinstance(error, TimeoutError) and time.monotonic() - start >= TIMEOUT
        why = f"did not answer in {TIMEOUT} s" if silent else f"does not answer: {one_line(error)}"
        raise ValueError(f"{rule}; {address} {why}") from error
    return Client(address, timeout=TIMEOUT)


def versions_of_workers(client: "Client") -> dict[str, str]:
    """The versions and threads of all workers; a ValueError if they differ: results could not be compared."""
    found = {json.dumps(each): each for each in client.run(versions).values()}
    if len(found) != 1:
        rule = "dask must have workers with the same versions and threads"
        raise ValueError(f"{rule}; it has {' and '.join(found) or 'none'}")
    return next(iter(found.values()))


def train_on_cluster(runs: list[TrainingRun], out: Path, display: Display, client: "Client") -> None:
    """Hand runs to Dask; each comes back as the files that it would have left here.

    The workers need this package, data at the same `data_root`, and modules that the options name by import
    path. A run that fails leaves the others going.
    """
    from distributed import as_completed

    # `pure=False`: Dask must not remember a run that failed.
    futures = {client.submit(_train_remotely, run, pure=False): run for run in runs}
    for run in runs:
        display.tell(run, "begin")
    try:
        for future in as_completed(list(futures)):
            run = futures[future]
            try:
                accuracy, files = future.result()
            except Exception as error:  # whatever a run fails with on another machine
                display.tell(run, "fail", one_line(error) or type(error).__name__)
                continue
            (out / run.folder).mkdir(parents=True, exist_ok=True)
            for name in FILES:  # in this order: result.json is the last
                write_whole(out / run.folder / name, files[name])
            display.tell(run, "end", accuracy)
    finally:
        client.cancel(list(futures))


def _train_remotely(run: TrainingRun) -> tuple[float, dict[str, bytes]]:
    """The test accuracy of one run, and the bytes of its files."""
    with _ONE_AT_A_TIME, TemporaryDirectory() as folder:
        accuracy = train(run, Path(folder), lambda epochs: None)
        return accuracy, {name: (Path(folder) / name).read_bytes() for name in FILES}
