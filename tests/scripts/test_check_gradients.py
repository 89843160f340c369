"""The script finds modules in the current folder."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_gradients.py"


def test_a_module_in_the_current_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def cube(x):\n    return x**3\n", encoding="utf-8")
    command = [sys.executable, str(SCRIPT), "mine:cube", "--shape", "2,2"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("mine:cube: ok (checked against finite differences)\n")
