"""The code that a module runs on: its source and the source of every project module that it
imports, directly or indirectly.

Modules are read from their source files, not from `sys.modules`, so that every process that starts
from the same files computes the same result. Imports under TYPE_CHECKING do not count. Objects that
are registered at run time are passed in by the caller; they count by module, name and arguments.
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
# The fields in which a statement holds nested statements.
_BODIES = ("body", "handlers", "orelse", "finalbody", "cases")
_ENCODER = msgspec.json.Encoder(order="deterministic")


def closure(roots: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted names of `roots` and of every module that they import. Raises
    ModuleNotFoundError.
    """
    modules, waiting = set[str](), list(roots)
    tops = PROJECT | {name.partition(".")[0] for name in waiting}
    while waiting:
        name = waiting.pop()
        if name in modules:
            continue
        modules.add(name)
        waiting += [
            imported
            for imported in (*_parents(name), *_imports(name))
            if imported.partition(".")[0] in tops
        ]
    return tuple(sorted(modules))


def code_fingerprint(roots: Iterable[str], registered: Iterable[object] = ()) -> str:
    """Return 16 hex digits over names and sources of the closure of `roots` and `registered`, and
    over the keys of `registered` in their order. Any change of these changes the digits. Raises
    TypeError (`key_of`)."""
    objects = tuple(registered)
    digest = xxhash.xxh3_64()
    for name in closure([*roots, *(_kind(item).__module__ for item in objects)]):
        digest.update(f"\0{name}\0{source(name)}".encode())
    for item in objects:
        digest.update(f"\0{key_of(item)}".encode())
    return digest.hexdigest()


def key_of(registered: object) -> str:
    """Return the key of a class, function or object: its name and, for a frozen msgspec.Struct, its
    encoded arguments. Raises TypeError for an object with unknown or mutable arguments."""
    kind = _kind(registered)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind is registered:
        return name
    frozen = isinstance(registered, msgspec.Struct) and registered.__struct_config__.frozen
    if not frozen and _has_arguments(registered):
        raise TypeError(
            f"{name} is registered with arguments that cannot be fingerprinted; "
            "make it a frozen msgspec.Struct"
        )
    try:
        hash(registered)
        return f"{name} {_ENCODER.encode(registered).decode()}" if frozen else name
    except TypeError as error:
        raise TypeError(
            f"{name} is registered with arguments that cannot be fingerprinted ({error}); "
            "use plain immutable values"
        ) from error


def _kind(registered: object) -> Any:
    """Return the class or function itself, or the class of an object."""
    return registered if isinstance(registered, type) or callable(registered) else type(registered)


def _has_arguments(registered: object) -> bool:
    slots = [slot for kind in type(registered).__mro__ for slot in getattr(kind, "__slots__", ())]
    return bool(getattr(registered, "__dict__", ())) or any(
        hasattr(registered, slot) for slot in slots
    )


@cache
def source(name: str) -> str:
    """Return the text of a module; "" for a folder without `__init__.py`. Cached, so that imports
    and fingerprint see the same text.
    """
    path = _path(name)
    return path.read_text() if path is not None else ""


@cache
def _path(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"no module {name!r} to fingerprint", name=name)
    return Path(spec.origin) if spec.origin else None


def _parents(name: str) -> Iterator[str]:
    # A package runs before its modules.
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


@cache
def _imports(name: str) -> tuple[str, ...]:
    package = name if _is_package(name) else name.rpartition(".")[0]
    tops = PROJECT | {package.partition(".")[0]}
    return tuple(
        imported
        for node in _statements(_tree(source(name)))
        for imported in _imported(node, package, tops)
    )


def _tree(text: str) -> ast.Module:
    """Parse up to the end of the paragraph that holds the last `import`. Most of a source follows
    that paragraph, and parsing it would dominate the start time of a service.
    """
    end = text.find("\n\n", text.rfind("import"))
    if end >= 0:
        # The paragraph may end inside a string or brackets; then the cut text does not parse.
        with contextlib.suppress(SyntaxError):
            return ast.parse(text[:end])
    return ast.parse(text)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement except type checkers' imports."""
    for body in _BODIES:
        for node in getattr(tree, body, ()):
            if not (isinstance(node, ast.If) and _is_type_checking(node.test)):
                yield node
                yield from _statements(node)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.id if isinstance(test, ast.Name) else getattr(test, "attr", "")
    return bool(name == "TYPE_CHECKING")


def _imported(node: ast.AST, package: str, tops: Set[str]) -> Iterator[str]:
    """Yield the modules that a statement imports; for packages below `tops`, also their modules."""
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
    """Return whether `name` is a module in the package, not a value of it."""
    path = _path(package)
    return path is not None and any(
        (path.parent / candidate).exists() for candidate in (f"{name}.py", f"{name}/__init__.py")
    )
