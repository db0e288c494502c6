"""`python -m tests.bench NAME [ARGUMENTS]`: runs the bench in `tests/bench/NAME.py`, found by its
name.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import tests.bench


def names() -> list[str]:
    """Return the names of the benches: the modules here without helpers (`_`) and tests."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules(tests.bench.__path__)
        if not module.name.startswith(("_", "test_"))
    )


def main(argv: list[str]) -> None:
    if not argv or argv[0] not in names():
        asked = f"no bench is called {argv[0]!r}; " if argv else ""
        sys.exit(
            f"{asked}usage: python -m tests.bench NAME [ARGUMENTS], NAME one of: "
            f"{', '.join(names())}"
        )
    importlib.import_module(f"tests.bench.{argv[0]}").main(argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
