"""A process' health: red components (need an operator) and readiness (needs time)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Status(msgspec.Struct, frozen=True):
    """`red`: component -> problem. `waiting`: component -> what it waits for. `details`: component
    -> further information.
    """

    red: dict[str, str]
    waiting: dict[str, str]
    details: dict[str, object] = {}

    @property
    def healthy(self) -> bool:
        return not self.red

    @property
    def ready(self) -> bool:
        return not self.red and not self.waiting


class Health:
    """Collects the health of components. A readiness check returns what it waits for, or ""."""

    def __init__(self) -> None:
        self._red: dict[str, str] = {}
        self._checks: dict[str, Callable[[], str]] = {}
        self._details: dict[str, Callable[[], object]] = {}

    def fail(self, component: str, problem: str) -> None:
        """Mark the component red: it has stopped until an operator acts."""
        self._red[component] = problem

    def recover(self, component: str) -> None:
        self._red.pop(component, None)

    def check(self, component: str, waiting_for: Callable[[], str]) -> None:
        """Register a readiness check."""
        self._checks[component] = waiting_for

    def show(self, component: str, ask: Callable[[], object]) -> None:
        """Show the result of `ask` (a JSON value) in health responses; it affects nothing."""
        self._details[component] = ask

    def status(self) -> Status:
        waits = {name: ask() for name, ask in sorted(self._checks.items())}
        details = {name: ask() for name, ask in sorted(self._details.items())}
        return Status(
            dict(sorted(self._red.items())),
            {name: text for name, text in waits.items() if text},
            details,
        )
