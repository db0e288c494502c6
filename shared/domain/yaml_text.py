"""YAML that somebody else wrote: read by libyaml where PyYAML has it, ten times as fast, and never deeper than is meant.

Depth is counted before anything is built, because libyaml's reader has no limit of its own and ends the process. Must not know
what the documents mean.
"""

from __future__ import annotations

from typing import Any

import yaml

YAMLError = yaml.YAMLError
MAX_DEPTH = 100
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


def document(text: str | bytes) -> Any:
    """The one document; None where there is none. Raises YAMLError, or ValueError for what is nested too deeply."""
    _check_depth(text)
    return yaml.load(text, _LOADER)


def documents(text: str | bytes) -> list[Any]:
    """All documents, empty ones as None. Raises as `document` does."""
    _check_depth(text)
    return list(yaml.load_all(text, _LOADER))


def _check_depth(text: str | bytes) -> None:
    depth = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, _OPENING):
            depth += 1
        elif isinstance(event, _CLOSING):
            depth -= 1
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise ValueError(f"line {line}: nested deeper than {MAX_DEPTH} levels")
