"""YAML that somebody else wrote: read by libyaml where PyYAML has it, ten times as fast, and never
deeper than is meant.

Depth is counted before anything is built, because libyaml's reader has no limit of its own and ends
the process. Must not know what the documents mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import yaml

YAMLError = yaml.YAMLError
MAX_DEPTH = 100
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DATE = "tag:yaml.org,2002:timestamp"
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class _Loader(_SAFE):  # type: ignore[misc]
    """Dates are text, as Kubernetes' reader of YAML has them: an annotation may be `2026-01-31`."""

    yaml_implicit_resolvers = {
        first: [(tag, looks) for tag, looks in found if tag != _DATE]
        for first, found in _SAFE.yaml_implicit_resolvers.items()
    }


_Loader.add_constructor(_DATE, yaml.constructor.SafeConstructor.construct_yaml_str)


def document(text: str | bytes) -> Any:
    """The one document; None where there is none. Raises YAMLError, or ValueError for what is
    nested too deeply.
    """
    _check_depth(text)
    with _named():
        return yaml.load(text, _Loader)


def documents(text: str | bytes) -> list[Any]:
    """All documents, empty ones as None. Raises as `document` does."""
    _check_depth(text)
    with _named():
        return list(yaml.load_all(text, _Loader))


@contextmanager
def _named() -> Iterator[None]:
    """PyYAML raises whatever comes where a tag (`!!bool`, `!!int`) stands before a text that is
    none.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError) as error:
        raise YAMLError(f"a value is not what its tag says ({error})") from error


class Repeated(msgspec.Struct, frozen=True):
    """A key that a mapping has already: PyYAML keeps the last of its values and says nothing."""

    line: int
    key: str


def repeated_keys(text: str | bytes) -> list[Repeated]:
    """Every key that is there again in its mapping, for readers that refuse what would be lost.
    Raises as `document` does.
    """
    _check_depth(text)
    root = yaml.compose(text, _SAFE)
    left, seen, found = [root] if root is not None else [], set[int](), list[Repeated]()
    while left:
        node = left.pop()
        if id(node) in seen:  # an alias: without this, few lines would take for ever
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        elif isinstance(node, yaml.MappingNode):
            found += _again(key for key, _ in node.value)
            left += [each for pair in node.value for each in pair]
    return sorted(found, key=lambda each: each.line)


def _again(keys: Iterable[yaml.Node]) -> Iterator[Repeated]:
    known = set[str]()
    for key in keys:
        if isinstance(key, yaml.ScalarNode):
            if key.value in known:
                yield Repeated(_line(key), key.value)
            known.add(key.value)


def _check_depth(text: str | bytes) -> None:
    depth = 0
    for event in yaml.parse(text, _SAFE):
        if isinstance(event, _OPENING):
            depth += 1
        elif isinstance(event, _CLOSING):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ValueError(f"line {_line(event)}: nested deeper than {MAX_DEPTH} levels")


def _line(at: yaml.Event | yaml.Node) -> int:
    return at.start_mark.line + 1 if at.start_mark else 0
