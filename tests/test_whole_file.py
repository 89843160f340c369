"""A file is written whole or not at all."""

from pathlib import Path

import pytest

from qat.whole_file import draft_of, write_json, write_whole


def test_it_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"old")
    assert write_whole(tmp_path / "plain", b"new").read_bytes() == b"new"
    (tmp_path / "other").write_bytes(b"")
    assert (tmp_path / "plain").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert len(list(tmp_path.iterdir())) == 2


def test_text_is_utf_8_with_its_own_line_ends(tmp_path: Path) -> None:
    assert write_whole(tmp_path / "text", "ä\n").read_bytes() == b"\xc3\xa4\n"


def test_json_has_null_where_a_number_is_not_finite(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", {"a": [1.5, float("nan")], "b": (float("inf"), "x")})
    assert path.read_text() == '{\n "a": [\n  1.5,\n  null\n ],\n "b": [\n  null,\n  "x"\n ]\n}'


def test_an_error_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(tmp_path / "model", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), draft_of(tmp_path / "a.npz") as draft:
        draft.write_bytes(b"half")
        assert draft.suffix == ".npz"
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    assert (tmp_path / "a.npz").read_bytes() == b"old"


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^path must lie in a folder that exists, got .*; make"):
        write_whole(tmp_path / "a" / "b", b"")
    with pytest.raises(ValueError, match=r"^path must be a file, got the folder"):
        write_whole(tmp_path, b"")
