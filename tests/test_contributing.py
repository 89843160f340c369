"""The steps of CONTRIBUTING.md: a forgotten one is named, with its file and its list."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
Names = Callable[[], list[str]]


def text_of(path: str) -> str:
    """The text of a file, or of all files with this pattern."""
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(ROOT.glob(path)))


def found(pattern: str, path: str) -> list[str]:
    """The first group of each match, without repetitions."""
    return list(dict.fromkeys(re.findall(pattern, text_of(path), re.MULTILINE)))


@dataclass(frozen=True)
class Step:
    """What one step of a list leaves in a file; `{name}` in the pattern is the member."""

    number: int
    what: str
    path: str
    pattern: str

    def is_done(self, name: str) -> bool:
        pattern = self.pattern.replace("{name}", re.escape(name))
        return re.search(pattern, text_of(self.path), re.MULTILINE) is not None

    def message(self, heading: str, name: str) -> str:
        return (
            f"{name} has no {self.what} in {self.path}: step {self.number} of '{heading}' in CONTRIBUTING.md"
        )


@dataclass(frozen=True)
class Members:
    """Members of one list, and the steps that each has taken."""

    heading: str
    names: Names
    steps: tuple[Step, ...]

    def missed(self, name: str) -> list[str]:
        return [step.message(self.heading, name) for step in self.steps if not step.is_done(name)]


ROUNDING, OBSERVERS = "qat/gradients/rounding.py", "qat/quantizers/observers.py"
BUILD, KINDS = "qat/quantizers/build.py", "tests/quantizers/test_contract.py"
RULES, READER = "qat/export/integers/rules.py", "qat/export/integers/reader.py"
CHOICES = ("WeightScaleName", "ActivationScaleName", "WeightObserverName", "ActivationObserverName")
SETUP = r"^  (\w+):\n    (?:meaning|model)"
REST = r"(?:.*\n(?!def |class ))*?.*"  # more lines of the same function or class
LITERAL = r'{kind} = Literal\[[^\]]*"{name}"'


def literals(kind: str, path: str) -> list[str]:
    return re.findall(r'"(\w+)"', found(rf"{kind} = Literal\[([^\]]*)\]", path)[0])


def roundings() -> list[str]:
    """Of `RoundingName`, and every other function `round_...`."""
    return list(dict.fromkeys([*literals("RoundingName", ROUNDING), *found(r"^def round_(\w+)", ROUNDING)]))


def kinds_with_a_rule() -> list[str]:
    """The modules that `Rules.module` knows, without their numbers of dimensions."""
    rules = re.findall(r"rules: .*?^        \]", text_of(RULES), re.MULTILINE | re.DOTALL)
    return list(dict.fromkeys(re.findall(r"nn\.([A-Za-z]+?)(?:\dd)?\b", "".join(rules))))


LISTS = {
    "rounding": Members(
        "Add a rounding",
        roundings,
        (
            Step(1, "function", ROUNDING, r"^def round_{name}\("),
            Step(1, "formulas", ROUNDING, r"^def round_{name}\(" + REST + "Forward: `" + REST + "Gradient"),
            Step(1, "place in RoundingName", ROUNDING, LITERAL.replace("{kind}", "RoundingName")),
            Step(1, "export", "qat/gradients/__init__.py", r'^    "round_{name}",'),
            Step(2, "row", "tests/gradients/test_contract.py", r'^    "round_{name}": Row\('),
            Step(3, "row", "qat/tour/gradient_rows.py", r'^    "round_{name}": GradientRow\('),
            Step(4, "setup", "qat/experiment/*.yaml", r"^  {name}:\n    meaning: "),
        ),
    ),
    "observer": Members(
        "Add an observer or a scale",
        lambda: literals("ObserverName", OBSERVERS),
        (
            Step(1, "place in ObserverName", OBSERVERS, LITERAL.replace("{kind}", "ObserverName")),
            Step(1, "row in OBSERVERS", OBSERVERS, r'^    "{name}": Observer\('),
            Step(2, "use", BUILD, r'"{name}"'),
        ),
    ),
    "statistic": Members(
        "Add an observer or a scale",
        lambda: found(r"^def (\w+_magnitude)", OBSERVERS),
        (Step(1, "row in OBSERVERS", OBSERVERS, r"Observer\({name}"),),
    ),
    "scale": Members(
        "Add an observer or a scale",
        lambda: found(r"^class (\w+)\(Scale\)", "qat/quantizers/*.py"),
        (
            Step(1, "export", "qat/quantizers/__init__.py", r'^    "{name}",'),
            Step(2, "use", BUILD, r"\b{name}\("),
        ),
    ),
    # Rows are named after the options that choose a scale or an observer; `observed` is the default.
    "choice": Members(
        "Add an observer or a scale",
        lambda: [name for kind in CHOICES for name in literals(kind, BUILD) if name != "observed"],
        (Step(3, "row in KINDS", KINDS, r'^    "[^"]*\b{name}\b[^"]*": Kind\('),),
    ),
    "layer": Members(
        "Add a layer",
        lambda: found(r"^class (\w+)\(QuantLayer, nn\.\w+\)", "qat/layers/*.py"),
        (
            Step(
                1,
                "operator",
                "qat/layers/layer.py",
                r"^class {name}\(" + REST + "(?:operator =|def forward|def operator)",
            ),
            Step(2, "place in QUANT_LAYERS", "qat/layers/insert.py", r"^    nn\.\w+: {name},"),
            Step(3, "row in PAIRS", "tests/layers/test_layers.py", r"^    \(\s*{name},"),
        ),
    ),
    "model": Members(
        "Add a model",
        lambda: literals("ModelName", "qat/models/__init__.py"),
        (
            Step(2, "row in MODELS", "qat/models/__init__.py", r'^    "{name}": '),
            Step(3, "number of parameters", "tests/models/test_models.py", r'^    "{name}": [\d_]+,'),
        ),
    ),
    "network": Members(
        "Add a model",
        lambda: found(r"^class ((?!\w*Block)[A-Z]\w*)\(", "qat/models/*.py"),
        (Step(2, "row in MODELS", "qat/models/__init__.py", r'^    "\w+": {name},'),),
    ),
    "rule": Members(
        "Add an operation to the integer export",
        kinds_with_a_rule,
        (Step(3, "model", "tests/export/**/*.py", r"nn\.{name}"),),
    ),
    "step": Members(
        "Add an operation to the integer export",
        lambda: found(r'step\["op"\] == "(\w+)"', READER),
        (Step(2, "C code", "qat/export/c/net*", r'op == "{name}"'),),
    ),
    "setup": Members(
        "Add a setup to the comparison",
        lambda: [n for n in found(SETUP, "qat/experiment/*.yaml") if n not in roundings()],
        (
            Step(1, "meaning", "qat/experiment/*.yaml", r"^  {name}:\n    meaning: "),
            Step(2, "place in the list", "tests/experiment/test_comparison.py", r'^        "{name}",'),
        ),
    ),
}
each_list = pytest.mark.parametrize("members", LISTS.values(), ids=LISTS.keys())


@each_list
def test_every_member_has_taken_every_step(members: Members) -> None:
    names = members.names()
    assert len(names) > 2, "the pattern finds no members"
    assert [missed for name in names for missed in members.missed(name)] == []


@each_list
def test_a_new_member_is_told_every_step(members: Members) -> None:
    assert len(members.missed("xyz")) == len(members.steps)


@pytest.mark.parametrize(
    ("members", "step"),
    [pytest.param(m, s, id=f"{k}-{s.number}-{s.what}") for k, m in LISTS.items() for s in m.steps],
)
def test_each_forgotten_step_is_named(members: Members, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    name = members.names()[1]
    pattern = step.pattern.replace("{name}", re.escape(name))
    original = text_of

    def forgetful(path: str) -> str:
        return (
            re.sub(pattern, "", original(path), flags=re.MULTILINE) if path == step.path else original(path)
        )

    monkeypatch.setitem(globals(), "text_of", forgetful)
    assert step.message(members.heading, name) in members.missed(name)


def test_a_rounding_in_the_file_alone_is_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    original = text_of
    added = (
        '\n\ndef round_xyz(x: Tensor) -> Tensor:\n    """Forward: `x`. Gradient: `2 * g`."""\n    return x\n'
    )
    monkeypatch.setitem(globals(), "text_of", lambda path: original(path) + added * (path == ROUNDING))
    assert "xyz" in roundings()
    where = "qat/tour/gradient_rows.py: step 3 of 'Add a rounding' in CONTRIBUTING.md"
    assert f"xyz has no row in {where}" in LISTS["rounding"].missed("xyz")


@each_list
def test_contributing_has_the_step_and_names_its_file(members: Members) -> None:
    _, _, rest = text_of("CONTRIBUTING.md").partition(f"## {members.heading}\n")
    steps = dict(re.findall(r"^(\d)\. (.*(?:\n   .*)*)", rest.partition("\n## ")[0], re.MULTILINE))
    for step in members.steps:
        assert Path(step.path).name.partition("*")[0] in steps[str(step.number)], step
