"""YAML from outside: parsed by libyaml if PyYAML has it (ten times as fast), with a limit on depth.

Depth is counted before anything is built, because libyaml's parser has no limit and crashes the
process. This module does not know what the documents mean.
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
    """A loader that keeps dates as text, as Kubernetes' YAML reader does: an annotation may be
    `2026-01-31`.
    """

    yaml_implicit_resolvers = {
        first: [(tag, looks) for tag, looks in resolvers if tag != _DATE]
        for first, resolvers in _SAFE.yaml_implicit_resolvers.items()
    }


_Loader.add_constructor(_DATE, yaml.constructor.SafeConstructor.construct_yaml_str)


def document(text: str | bytes) -> Any:
    """Return the one document, or None if there is none. Raises YAMLError, or ValueError if it is
    nested too deeply.
    """
    _check_depth(text)
    with _named():
        return yaml.load(text, _Loader)


def documents(text: str | bytes) -> list[Any]:
    """Return all documents, empty ones as None. Raises the errors of `document`."""
    _check_depth(text)
    with _named():
        return list(yaml.load_all(text, _Loader))


@contextmanager
def _named() -> Iterator[None]:
    """Turn the errors that PyYAML raises for a wrong tag (`!!bool`, `!!int`) into YAMLError."""
    try:
        yield
    except (AttributeError, LookupError, TypeError) as error:
        raise YAMLError(f"a value is not what its tag says ({error})") from error


class Repeated(msgspec.Struct, frozen=True):
    """A key that occurs twice in a mapping. PyYAML silently keeps the last value."""

    line: int
    key: str


def repeated_keys(text: str | bytes) -> list[Repeated]:
    """Return every repeated key, for readers that must not lose a value silently. Raises the errors
    of `document`.
    """
    _check_depth(text)
    root = yaml.compose(text, _SAFE)
    pending, seen, repeated = [root] if root is not None else [], set[int](), list[Repeated]()
    while pending:
        node = pending.pop()
        if id(node) in seen:  # an alias: without this, few lines would take for ever
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        elif isinstance(node, yaml.MappingNode):
            repeated += _again(key for key, _ in node.value)
            pending += [child for pair in node.value for child in pair]
    return sorted(repeated, key=lambda child: child.line)


def _again(keys: Iterable[yaml.Node]) -> Iterator[Repeated]:
    seen_keys = set[str]()
    for key in keys:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen_keys:
                yield Repeated(_line(key), key.value)
            seen_keys.add(key.value)


def _check_depth(text: str | bytes) -> None:
    depth = 0
    for event in yaml.parse(text, _SAFE):
        if isinstance(event, _OPENING):
            depth += 1
        elif isinstance(event, _CLOSING):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ValueError(f"line {_line(event)}: nested deeper than {MAX_DEPTH} levels")


def _line(mark_owner: yaml.Event | yaml.Node) -> int:
    return mark_owner.start_mark.line + 1 if mark_owner.start_mark else 0
