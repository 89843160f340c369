"""Rooms import only from lower floors, and `import qat` needs torch alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = {
    **dict.fromkeys(
        ("names", "module_state", "torch_private", "whole_file", "progress", "options"), -1
    ),  # files below the rooms
    **dict.fromkeys(("gradients", "models", "data"), 0),
    **dict.fromkeys(("losses", "quantizers"), 1),
    **dict.fromkeys(("layers", "memory"), 2),
    **dict.fromkeys(("training", "export"), 3),
    "experiment": 4,
    **dict.fromkeys(("report", "measure", "tour"), 5),
    "cli": 6,
}
FILES = sorted(path for path in (ROOT / "qat").rglob("*.py") if path.parent != ROOT / "qat")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [node.module or ""]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert "qat" not in names, f"{path}: the top imports the rooms, not the other way round"
        rooms |= {name.split(".")[1] for name in names if name.startswith("qat.")}
    return rooms


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_room_imports_lower_floors_only(path: Path) -> None:
    room = path.relative_to(ROOT / "qat").parts[0]
    for other in imported_rooms(path) - {room}:
        assert FLOORS[other] < FLOORS[room], f"{room} (floor {FLOORS[room]}) imports {other}"


def test_no_room_without_a_floor() -> None:
    rooms = {path.name for path in (ROOT / "qat").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= FLOORS.keys()


def test_import_qat_needs_torch_alone() -> None:
    code = (
        "import sys, qat; heavy = {'lightning', 'torchvision', 'matplotlib', 'onnx', 'rich', 'mlxtend'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
