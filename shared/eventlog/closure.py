"""The code that a module runs on: its own source and that of every module of the project that it
imports, however indirectly.

Read from the sources, not from what happens to be loaded, so that every process that starts from
the same files finds the same. Imports for type checkers alone do not count. What is looked up at
run time (a registry that others add to) must be given beside: it counts by its module, its name and
its arguments.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
from collections.abc import Iterable, Iterator, Set
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import xxhash

PROJECT = frozenset({"services", "shared", "plugins"})
_BODIES = ("body", "handlers", "orelse", "finalbody", "cases")
"""Where a statement holds others."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


def closure(roots: Iterable[str]) -> tuple[str, ...]:
    """Names of the modules that `roots` (names, too) run on, themselves included, sorted. Raises
    ModuleNotFoundError.
    """
    found, waiting = set[str](), list(roots)
    tops = PROJECT | {name.partition(".")[0] for name in waiting}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting += [
            other for other in (*_parents(name), *_imports(name)) if other.partition(".")[0] in tops
        ]
    return tuple(sorted(found))


def code_fingerprint(roots: Iterable[str], registered: Iterable[object] = ()) -> str:
    """16 hex digits over names and sources of the closure of `roots` and of what is `registered`,
    and over the keys of the latter in their order: any change of any of its modules or arguments
    changes them. Raises TypeError (`key_of`)."""
    found = tuple(registered)
    digest = xxhash.xxh3_64()
    for name in closure([*roots, *(_kind(each).__module__ for each in found)]):
        digest.update(f"\0{name}\0{source(name)}".encode())
    for each in found:
        digest.update(f"\0{key_of(each)}".encode())
    return digest.hexdigest()


def key_of(registered: object) -> str:
    """What tells this class, function or object from its like: its name, and of a frozen
    msgspec.Struct its arguments, encoded. Raises TypeError for an object of which arguments cannot
    be told, or may change."""
    kind = _kind(registered)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind is registered:
        return name
    frozen = isinstance(registered, msgspec.Struct) and registered.__struct_config__.frozen
    if not frozen and _has_arguments(registered):
        raise TypeError(
            f"{name} is registered with arguments that no key tells: make it a frozen msgspec.Struct"
        )
    try:
        hash(registered)
        return f"{name} {_ENCODER.encode(registered).decode()}" if frozen else name
    except TypeError as error:
        raise TypeError(
            f"{name} is registered with arguments that no key tells ({error}): use plain immutable values"
        ) from error


def _kind(registered: object) -> Any:
    """The class or function itself, of objects their class."""
    return registered if isinstance(registered, type) or callable(registered) else type(registered)


def _has_arguments(registered: object) -> bool:
    slots = [slot for kind in type(registered).__mro__ for slot in getattr(kind, "__slots__", ())]
    return bool(getattr(registered, "__dict__", ())) or any(
        hasattr(registered, slot) for slot in slots
    )


@cache
def source(name: str) -> str:
    """The text of a module; "" for a folder without one. Read once: what is followed and what is
    told of are the same text.
    """
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
    return tuple(
        other
        for node in _statements(_tree(source(name)))
        for other in _imported(node, package, tops)
    )


def _tree(text: str) -> ast.Module:
    """The syntax tree; without what comes after the paragraph with the last `import`, even one
    within a word: most of nearly every source, and of the time that a service's start spends here.
    """
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
    return (
        test.id
        if isinstance(test, ast.Name)
        else test.attr
        if isinstance(test, ast.Attribute)
        else ""
    ) == "TYPE_CHECKING"


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
    return path is not None and any(
        (path.parent / each).exists() for each in (f"{name}.py", f"{name}/__init__.py")
    )
