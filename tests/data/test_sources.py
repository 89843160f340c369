from pathlib import Path
from typing import get_args

import pytest

from qat.data import SOURCES, DataName, data_shape, resolve_root


def test_every_name_has_a_source() -> None:
    assert set(get_args(DataName)) == set(SOURCES)


@pytest.mark.parametrize(
    ("name", "shape"), [("mnist5k", (1, 28, 28)), ("mnist", (1, 28, 28)), ("cifar10", (3, 32, 32))]
)
def test_shapes_are_known_before_the_data(
    tmp_path: Path, name: DataName, shape: tuple[int, int, int]
) -> None:
    assert data_shape(name, str(tmp_path / "absent")) == (shape, 10)
    assert not (tmp_path / "absent").exists()


def test_a_folders_shape(tmp_path: Path, write_folder) -> None:
    write_folder(tmp_path, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}, (1, 9, 7))
    assert data_shape("folder", str(tmp_path)) == ((1, 9, 7), 3)


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"^unknown data 'cifar100'; nearest: cifar10$"):
        data_shape("cifar100")
    with pytest.raises(
        ValueError, match=r"^unknown data '\?'; choose from: mnist5k, mnist, cifar10, folder$"
    ):
        data_shape("?")


def test_the_root_is_the_argument_then_the_variable_then_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QAT_DATA", "from_variable")
    assert resolve_root("from_argument") == Path("from_argument")
    assert resolve_root(None) == Path("from_variable")
    monkeypatch.setenv("QAT_DATA", "")
    assert resolve_root(None) == Path("data")
    monkeypatch.delenv("QAT_DATA")
    assert resolve_root(None) == Path("data")
    assert resolve_root("~/x") == Path.home() / "x"


@pytest.mark.parametrize("name", [None, 3, ["mnist"], {}])
def test_a_name_that_is_no_text(name) -> None:
    with pytest.raises(ValueError, match=r"^unknown data [^\n]*; [^\n]*$"):
        data_shape(name)


@pytest.mark.parametrize("root", [3, True, ["a"], "a\0b"])
def test_a_root_that_is_no_path(root) -> None:
    with pytest.raises(ValueError, match=r"^data_root must be the path of a folder, got [^\n]*; [^\n]*$"):
        data_shape("mnist5k", root)
