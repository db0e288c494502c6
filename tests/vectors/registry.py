"""The kinds of vector files, and reading a file: from its bytes to (case, differences)."""

from __future__ import annotations

import gzip
import importlib
import json
import pkgutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

from tests.vectors import kinds

Case = dict[str, Any]

# Endings of vector files.
ENDINGS = (".json", ".json.gz", ".jsonl", ".jsonl.gz")


class Kind(Protocol):
    """The members of a module in `tests.vectors.kinds`.

    Optional are `cases(doc)`, and `deliberate(case)`: the names of the differences that a case may
    show.
    """

    KIND: str

    def recognises(self, doc: dict[str, Any]) -> bool:
        """Return whether this is a file of the kind."""

    def check(self, case: Case) -> list[str]:
        """Return the differences between the recorded answer and Topolog's."""


class UnreadableError(Exception):
    """A file that is no vector file."""


def all_kinds() -> list[Kind]:
    """Every module of the kinds package that declares `KIND`, by name."""
    modules = (
        importlib.import_module(f"{kinds.__name__}.{entry.name}")
        for entry in pkgutil.iter_modules(kinds.__path__)
    )
    return [cast(Kind, module) for module in modules if hasattr(module, "KIND")]


def load(path: Path) -> dict[str, Any]:
    """Return the document in a file. JSON lines are one case each. Raises `UnreadableError` with
    the problem.
    """
    if path.is_dir():
        raise UnreadableError("no vector file in this folder (.json, .jsonl or either as .gz)")
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.name.endswith(".gz") else raw
        if path.name.endswith((".jsonl", ".jsonl.gz")):
            return {"cases": [json.loads(line) for line in raw.splitlines() if line.strip()]}
        doc = json.loads(raw)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UnreadableError(f"cannot be read as JSON ({error})") from error
    if not isinstance(doc, dict) or not isinstance(doc.get("cases"), list):
        raise UnreadableError("is not a vector file (an object with a list of cases)")
    return doc


def kind_of(doc: dict[str, Any]) -> Kind | None:
    """Return the kind that recognises the document."""
    return next((kind for kind in all_kinds() if kind.recognises(doc)), None)


def has_keys(doc: dict[str, Any], *keys: str) -> bool:
    """Return whether the document's cases have these keys, by which most kinds are recognised."""
    cases = doc.get("cases")
    first = cases[0] if isinstance(cases, list) and cases else None
    return isinstance(first, dict) and all(key in first for key in keys)


def results(kind: Kind, doc: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the id and the differences of each case. If our code raises, the exception is the
    difference.
    """
    listed = getattr(kind, "cases", None)
    cases: Iterable[Case] = listed(doc) if listed is not None else doc["cases"]
    for number, case in enumerate(cases):
        name = str(case.get("id", number)) if isinstance(case, dict) else str(number)
        try:
            yield name, kind.check(case)
        except Exception as error:  # A vector must never stop the run.
            yield name, [f"raised {type(error).__name__}: {error}"]


def deliberate_names(kind: Kind, doc: dict[str, Any]) -> dict[str, str]:
    """Return the cases that may differ on purpose, by id, with the names of the differences."""
    named: Callable[[Case], list[str]] = getattr(kind, "deliberate", lambda case: [])
    listed = ((str(case.get("id")), " + ".join(named(case))) for case in doc["cases"])
    return {name: quirks for name, quirks in listed if quirks}
