"""The code that a module runs on: its own source and that of every module of the project that it imports, however indirectly.

Read from the sources, not from what happens to be loaded, so that every process that starts from the same files finds the same.
Imports for type checkers alone do not count. What is looked up at run time (a registry that others add to) must be named beside.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
from collections.abc import Iterable, Iterator, Set
from functools import cache
from pathlib import Path

import xxhash

PROJECT = frozenset({"services", "shared"})
_BODIES = ("body", "handlers", "orelse", "finalbody", "cases")
"""Where a statement holds others."""


def closure(roots: Iterable[str]) -> tuple[str, ...]:
    """Names of the modules that `roots` (names, too) run on, themselves included, sorted. Raises ModuleNotFoundError."""
    found, waiting = set[str](), list(roots)
    tops = PROJECT | {name.partition(".")[0] for name in waiting}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting += [other for other in (*_parents(name), *_imports(name)) if other.partition(".")[0] in tops]
    return tuple(sorted(found))


def code_fingerprint(roots: Iterable[str]) -> str:
    """16 hex digits over names and sources of the closure: any change of any of its modules changes them."""
    digest = xxhash.xxh3_64()
    for name in closure(roots):
        digest.update(f"\0{name}\0{source(name)}".encode())
    return digest.hexdigest()


@cache
def source(name: str) -> str:
    """The text of a module; "" for a folder without one. Read once: what is followed and what is told of are the same text."""
    path = _path(name)
    return path.read_text() if path is not None else ""


@cache
def _path(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    if found is None:
        raise ModuleNotFoundError(f"no module {name!r} to fingerprint", name=name)
    return Path(found.origin) if found.origin else None


def _parents(name: str) -> Iterator[str]:
    """Packages run before what is in them."""
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


@cache
def _imports(name: str) -> tuple[str, ...]:
    package = name if _is_package(name) else name.rpartition(".")[0]
    tops = PROJECT | {package.partition(".")[0]}
    return tuple(other for node in _statements(_tree(source(name))) for other in _imported(node, package, tops))


def _tree(text: str) -> ast.Module:
    """The syntax tree; without what comes after the paragraph with the last `import`, even one within a word: most of nearly
    every source, and of the time that a service's start spends here."""
    end = text.find("\n\n", text.rfind("import"))
    if end >= 0:
        # The paragraph may end within a string or brackets: cut there, the text is no syntax.
        with contextlib.suppress(SyntaxError):
            return ast.parse(text[:end])
    return ast.parse(text)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement but what only a type checker runs."""
    for body in _BODIES:
        for node in getattr(tree, body, ()):
            if not (isinstance(node, ast.If) and _is_type_checking(node.test)):
                yield node
                yield from _statements(node)


def _is_type_checking(test: ast.expr) -> bool:
    """`TYPE_CHECKING`, by whatever module."""
    return (test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else "") == "TYPE_CHECKING"


def _imported(node: ast.AST, package: str, tops: Set[str]) -> Iterator[str]:
    """What a statement imports; of packages below `tops` also the modules in them."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        yield base
        if base.partition(".")[0] in tops and _is_package(base):
            yield from (f"{base}.{alias.name}" for alias in node.names if _holds(base, alias.name))


def _is_package(name: str) -> bool:
    path = _path(name)
    return path is None or path.name == "__init__.py"


def _holds(package: str, name: str) -> bool:
    """Whether `name` is a module in the package, and no value of it."""
    path = _path(package)
    return path is not None and any((path.parent / each).exists() for each in (f"{name}.py", f"{name}/__init__.py"))
