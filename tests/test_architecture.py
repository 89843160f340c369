"""Rooms import only from lower floors, files stay small, and `import qat` needs torch alone."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BELOW = (
    "module_state",
    "torch_private",
    "whole_file",
    "progress",
    "options",
    "yaml_file",
    "swapped_class",
    "quiet",
)  # files below the rooms
FLOORS = {
    "names": -2,
    **dict.fromkeys(BELOW, -1),
    **dict.fromkeys(("gradients", "models", "data"), 0),
    **dict.fromkeys(("losses", "quantizers"), 1),
    **dict.fromkeys(("layers", "memory"), 2),
    **dict.fromkeys(("training", "export", "testing"), 3),
    "experiment": 4,
    **dict.fromkeys(("report", "measure", "tour"), 5),
    "cli": 6,
}
ENTRIES = ("__init__.py", "__main__.py")  # of the package: they stand on all floors
FILES = sorted(
    path for path in (ROOT / "qat").rglob("*.py") if path.parent != ROOT / "qat" or path.name not in ENTRIES
)


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
    room = path.relative_to(ROOT / "qat").parts[0].removesuffix(".py")
    for other in imported_rooms(path) - {room}:
        assert FLOORS[other] < FLOORS[room], f"{room} (floor {FLOORS[room]}) imports {other}"


def test_each_room_and_file_has_a_floor() -> None:
    here = {path.name.removesuffix(".py") for path in (ROOT / "qat").iterdir() if path.name not in ENTRIES}
    assert here - {"__pycache__", "py.typed"} == FLOORS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_has_at_most_300_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def test_the_median_file_is_short() -> None:
    lengths = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES)
    assert lengths[len(lengths) // 2] < 90


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for path in FILES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_import_qat_needs_torch_alone() -> None:
    code = (
        "import sys, qat; [getattr(qat, name) for name in qat.__all__];"
        "heavy = {'lightning', 'torchvision', 'matplotlib', 'onnx', 'rich', 'mlxtend', 'jsonargparse'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_command_line_loads_no_torch_before_its_verb() -> None:
    code = "import sys, qat.cli; qat.cli.main(['--help']); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "False"
