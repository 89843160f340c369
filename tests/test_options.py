"""Messages of jsonargparse become one line that names the option, the rule, the value and the remedy."""

import pytest

from qat.options import explain

OPTIONS = {"model.bits": "of weights; 1 to 8.", "model.loss": "", "trainer.max_epochs": "Of the trainer."}
CASES = {
    "Option 'modle.loss' is not accepted": "unknown option 'modle.loss'; nearest: model.loss, model.bits",
    "Group 'model' does not accept option 'los'": (
        "unknown option 'model.los'; nearest: model.loss, model.bits"
    ),
    "unrecognized arguments: --model.los 3": "unknown option 'model.los'; nearest: model.loss, model.bits",
    "unrecognized arguments: loss": "options start with --, got loss",
    "argument -b/--model.bits: expected one argument": "model.bits needs a value",
    "Parser key \"model.bits\":\n  Expected a <class 'int'>. Got value: four": (
        "model.bits must be an integer, got four (of weights; 1 to 8)"
    ),
    "Parser key \"trainer.max_epochs\":\n  Expected a <class 'int'>. Got value: x": (
        "trainer.max_epochs must be an integer, got x"
    ),
    "Parser key \"model.loss\":\n  Expected a typing.Literal['huber', 'mse']. Got value: hubert": (
        "model.loss: unknown name 'hubert'; nearest: huber"
    ),
    "Parser key \"a\":\n - Expected a <class 'int'>\n - Expected a <class 'NoneType'>\n Given value: ": (
        "a must be an integer, got nothing"
    ),
    "Parser key \"config\": File does not exist: '/no.yaml'": (
        "config must be a YAML file, but there is none at '/no.yaml'"
    ),
    'Linked "model.seed" must be given via "seed".': "model.seed follows from seed: set that instead",
    "Call to compute_fn of link 'a' failed: unknown data 'x';\n  nearest: y": "unknown data 'x'; nearest: y",
    "Problems parsing config: line 4": "config is not valid YAML: line 4",
    "Unexpected config: [1]": "config must hold groups such as model, data and trainer, got [1]",
    'Parser key "model.loss": broken\n in two': "model.loss: broken in two",
    "anything\n  else": "anything else",
}


@pytest.mark.parametrize("message", CASES)
def test_message(message: str) -> None:
    assert explain(message, OPTIONS) == CASES[message]


def test_a_number_where_a_name_belongs_asks_for_quotes() -> None:
    message = "Parser key \"model.loss\":\n  Expected a <class 'str'>. Got value: 1.1"
    assert explain(message, OPTIONS) == "model.loss must be text, got 1.1; put the name in quotes"


def test_a_value_is_shown_as_it_was_given() -> None:
    each = (
        " - Expected a <class 'int'>. Got value: 2000.0\n - Expected a <class 'NoneType'>. Got value: 2000.0"
    )
    message = f"Parser key \"trainer.max_epochs\":\n{each}\nGiven value type: <class 'str'>\nGiven value: 2e3"
    assert explain(message, OPTIONS) == "trainer.max_epochs must be an integer, got 2e3"
