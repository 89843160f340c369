"""Read a YAML file of a user: whole, plain and small, or an error in one line."""

import re
from pathlib import Path
from typing import Any

import yaml

from qat.names import one_line

MAX_BYTES = 1 << 20
MAX_VALUES = 100_000  # with each alias counted as often as it is used
MAX_DEPTH = 50  # of mappings and lists inside each other
FLOAT = re.compile(
    r"[-+]?(\d[\d_]*\.[\d_]*([eE][-+]?\d+)?|\.\d[\d_]*([eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.(inf|Inf|INF))"
    r"|\.(nan|NaN|NAN)"
)
TAG = "tag:yaml.org,2002:"


def read_yaml(argument: str, path: str | Path) -> Any:
    """The content of a YAML file: mappings with text keys, lists, text, numbers, true, false and null.

    A number may be written `1e-3`; a date is text. Nothing else is built, whatever tags the file holds.

    Raises:
        ValueError: there is no such file, it is not plain YAML in UTF-8, a mapping holds a key twice or one
            that is not text, or it is too large; the message names the option `argument` and the file.
    """
    path = Path(path)
    try:
        if not path.is_file():  # a folder, or a pipe that may never say anything
            what = "it is no file" if path.exists() else "there is no such file"
        elif path.stat().st_size > MAX_BYTES:
            what = f"it has more than {MAX_BYTES:,} bytes"
        else:
            return _content(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        what = f"it is not in UTF-8: {error.object[:20]!r}"
    except OSError as error:
        what = error.strerror or str(error)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"line {mark.line + 1}: {error.problem}" if mark else one_line(error)
    except (ValueError, yaml.YAMLError) as error:
        what = one_line(error)
    raise ValueError(f"{argument} must be a YAML file; {path}: {what}")


def check_aliases(text: str) -> None:
    """Raise ValueError for an option in YAML whose aliases grow too large, which its parser would build."""
    try:
        node = _Loader(text).get_single_node()
    except yaml.YAMLError:
        return  # it is no YAML, and may be right
    if node is not None:
        _count(node, {})


def _content(text: str) -> Any:
    loader = _Loader(text)
    node = loader.get_single_node()
    if node is None:
        return None
    _count(node, {})
    return loader.construct_document(node)


def _count(node: yaml.Node, counted: dict[int, int]) -> int:
    """The number of values below a node, each alias written out."""
    number = counted.get(id(node), 1)
    if number == 0:
        raise ValueError(f"line {node.start_mark.line + 1}: an alias contains itself")
    if id(node) not in counted and isinstance(node, yaml.CollectionNode):
        counted[id(node)] = 0
        pairs = isinstance(node, yaml.MappingNode)
        children = [child for pair in node.value for child in pair] if pairs else node.value
        number += sum(_count(child, counted) for child in children)
        counted[id(node)] = number
    if number > MAX_VALUES:
        raise ValueError(
            f"line {node.start_mark.line + 1}: more than {MAX_VALUES:,} values, aliases written out"
        )
    return number


class _Loader(yaml.SafeLoader):
    """Builds plain values only, and refuses a key that a mapping holds twice; YAML keeps the last one."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        nodes = [key for key, _ in node.value if key.tag != f"{TAG}merge"]  # `<<` may stand there twice
        seen = set()
        for each in nodes:
            key, line = self.construct_object(each, deep=True), f"line {each.start_mark.line + 1}"
            if not isinstance(key, str):
                raise ValueError(f"{line}: a key must be text, got {each.value}; put the name in quotes")
            if key in seen:
                raise ValueError(f"{line}: {key!r} is there twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


# Plain values only: numbers may be 1e-3, dates are text, and tags such as !!set are refused.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag.removeprefix(TAG) not in ("float", "timestamp")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.yaml_constructors = {
    tag: build
    for tag, build in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(TAG) in ("null", "bool", "int", "float", "str", "seq", "map")
}
_Loader.add_implicit_resolver(f"{TAG}float", re.compile(f"^(?:{FLOAT.pattern})$"), list("-+0123456789."))
