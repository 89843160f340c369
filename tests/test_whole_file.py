"""A file is there whole or not at all."""

from pathlib import Path

import pytest

from qat.whole_file import write_whole


def test_it_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"old")
    assert write_whole(tmp_path / "plain", b"new").read_bytes() == b"new"
    (tmp_path / "other").write_bytes(b"")
    assert (tmp_path / "plain").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert len(list(tmp_path.iterdir())) == 2


def test_an_error_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(tmp_path / "model", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^path must lie in a folder that exists, got .*; make"):
        write_whole(tmp_path / "a" / "b", b"")
