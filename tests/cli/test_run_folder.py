"""Each run has a folder, claimed in one step; output folders are tried before the work."""

from pathlib import Path

import pytest

from qat.cli.run_folder import check_writable, new_version


def test_runs_that_start_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    with new_version(tmp_path) as first, new_version(tmp_path) as second:
        folders = [Path(loggers[0].log_dir or "") for loggers in (first, second)]
        assert [Path(loggers[1].log_dir or "") for loggers in (first, second)] == folders
    assert [folder.name for folder in folders] == ["version_0", "version_1"]
    (tmp_path / "version_2").write_text("")
    with new_version(tmp_path) as third:
        assert Path(third[0].log_dir or "").name == "version_3"


def test_another_process_of_a_run_claims_nothing(tmp_path: Path) -> None:
    with new_version(tmp_path, claims=False):
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trained", [False, True])
def test_an_error_before_the_first_ckpt_leaves_no_folder(trained: bool, tmp_path: Path) -> None:
    claim = new_version(tmp_path)
    folder = Path(claim.__enter__()[0].log_dir or "")
    (folder / "config.yaml").touch()
    if trained:
        (folder / "last.ckpt").touch()
    assert not claim.__exit__(ValueError, ValueError("refused"), None)
    assert folder.exists() == trained


@pytest.mark.parametrize("folder", ["/proc/x", "/dev/null/x"])
def test_a_folder_that_cannot_be_made(folder: str) -> None:
    with pytest.raises(ValueError, match=f"out must be a writable folder, got {folder}: "):
        check_writable("out", folder)
