"""YAML files of users: plain values, or one line that names the file."""

import os
from pathlib import Path

import pytest

from qat.yaml_file import read_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
)
REFUSED = {
    "a: 1\nb: 2\na: 3": "line 3: 'a' is there twice",
    "a: {b: 1, b: 2}": "line 1: 'b' is there twice",
    "1.10: x": "line 1: a key must be text, got 1.10; put the name in quotes",
    "on: x": "got on; put the name in quotes",
    "null: x": "got null; put the name in quotes",
    "? [a]\n: x": "line 1: ",
    "a: [1": "line 1: expected ',' or ']', but got '<stream end>'",
    BOMB: "more than 100,000 values, aliases written out",
    "&a [*a]": "line 1: an alias contains itself",
    "[" * 500 + "]" * 500: "it is nested too deeply",
    "a: !!python/object/apply:os.system [touch x]": "line 1: could not determine a constructor",
    "a: !!set {b, c}": "line 1: could not determine a constructor",
    "a: !!binary eA==": "line 1: could not determine a constructor",
    "a: !!int x": "invalid literal",
    f"a: {'9' * 5000}": "integer string conversion",
    "a: 1\n---\nb: 2": "line 2: but found another document",
    "x" * ((1 << 20) + 1): "it has more than 1,048,576 bytes",
    "a: \0": "special characters are not allowed",
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_a_file_that_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ValueError) as caught:
        read_yaml("config", tmp_path / "a.yaml")
    line = str(caught.value)
    assert line.startswith(f"config must be a YAML file; {tmp_path / 'a.yaml'}: ")
    assert REFUSED[text] in line
    assert "\n" not in line


def test_plain_values(tmp_path: Path) -> None:
    text = "\ufeffa: [1, 1e-3, 2., 0x10, .inf, 1_000]\nb: {c: 2024-01-02, d: 'é', e: ~, f: yes}\n"
    text += "g: &g {h: 1}\ni: {<<: *g}"
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    assert read_yaml("config", tmp_path / "a.yaml") == {
        "a": [1, 0.001, 2.0, 16, float("inf"), 1000],
        "b": {"c": "2024-01-02", "d": "é", "e": None, "f": True},
        "g": {"h": 1},
        "i": {"h": 1},
    }


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", "é".encode("latin-1")])
def test_another_encoding(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(ValueError, match="it is not in UTF-8"):
        read_yaml("config", tmp_path / "a.yaml")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    paths = {"none.yaml": "there is no such file", "": "it is no file"}
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.yaml")
        paths["pipe.yaml"] = "it is no file"
    for name, what in paths.items():
        with pytest.raises(ValueError, match=f"config must be a YAML file; .*: {what}"):
            read_yaml("config", tmp_path / name)
