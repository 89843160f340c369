"""One comparison at a time in a folder, and a claim ends with its process."""

import subprocess
import sys
from pathlib import Path

import pytest

from qat.experiment.claim import claimed

HOLD = "import sys, time; from pathlib import Path; from qat.experiment.claim import claimed\n"
HOLD += "with claimed(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


def test_a_second_one_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with claimed(tmp_path / "out"):
        message = "out must be a folder that no other comparison is using"
        with pytest.raises(ValueError, match=message), claimed(tmp_path / "out"):
            pass
        with claimed(tmp_path / "another"):
            pass
    with claimed(tmp_path / "out"):
        pass


@pytest.mark.slow
def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match="wait until that one ends"), claimed(tmp_path):
        pass
    process.kill()
    process.communicate()
    with claimed(tmp_path):
        pass
