"""Options given as data, and one line for what is wrong: the option, the rule, the value, the remedy."""

import re
from collections.abc import Mapping

from qat.names import one_line, unknown_name

KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list [a, b]",
}
REWORDED = {
    r"^Problems parsing config:": "config is not valid YAML:",
    r"^Unexpected config:": "config must hold groups such as model, data and trainer, got",
    r'^Parser key "(.+?)":': r"\1:",
}


def explain(message: str, options: Mapping[str, str]) -> str:
    """One line for a message of jsonargparse.

    Args:
        message: what its parser says, of one line or many.
        options: every option there is, such as `model.quantization.weight_bits`, and its help.
    """
    link = re.match(r"Call to compute_fn of link .*? failed: (.*)", message, re.DOTALL)
    if link:
        return one_line(link[1])
    key = re.search(r"does not accept option '(.+)'|unrecognized arguments: --([^\s=]+)", message)
    if key:
        return str(unknown_name("option", key[1] or key[2], options))
    key = re.match(r'Parser key "(.+?)"(?: element \d+)?:', message)
    value = re.search(r"(?:Got|Given) value: (.*)", message, re.DOTALL)
    if not key or not value:
        for start, better in REWORDED.items():
            message = re.sub(start, better, message)
        return one_line(message)
    hint = options.get(key[1], "") if key[1].startswith(("model.", "data.")) else ""
    return _wrong_value(key[1], one_line(value[1]), message[: value.start()], one_line(hint))


def _wrong_value(key: str, value: str, rules: str, hint: str) -> str:
    choices = [c for found in re.findall(r"Literal\[(.*?)\]", rules) for c in re.findall(r"'(.*?)'", found)]
    types = dict.fromkeys(re.findall(r"Expected an? <class '(.*?)'>", rules))
    kinds = [KINDS.get(name, name.rpartition(".")[2]) for name in types if name != "NoneType"]
    if choices and not kinds:
        return f"{key}: {unknown_name('name', value, dict.fromkeys(choices))}"
    kinds += dict.fromkeys(choices)
    return f"{key} must be {' or '.join(kinds) or 'of another kind'}, got {value or 'nothing'}" + (
        f" ({hint})" if hint else ""
    )
