"""What a process knows of its own health: red components (need an operator) and readiness (needs
time).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Status(msgspec.Struct, frozen=True):
    """`red`: component -> what is wrong. `waiting`: component -> what it waits for. `said`:
    component -> what else it says.
    """

    red: dict[str, str]
    waiting: dict[str, str]
    said: dict[str, object] = {}

    @property
    def healthy(self) -> bool:
        return not self.red

    @property
    def ready(self) -> bool:
        return not self.red and not self.waiting


class Health:
    """Collects what components say of themselves. A readiness check returns what it waits for,
    empty when ready.
    """

    def __init__(self) -> None:
        self._red: dict[str, str] = {}
        self._checks: dict[str, Callable[[], str]] = {}
        self._told: dict[str, Callable[[], object]] = {}

    def fail(self, component: str, problem: str) -> None:
        """The component stopped and will not go on by itself."""
        self._red[component] = problem

    def recover(self, component: str) -> None:
        """The component works again."""
        self._red.pop(component, None)

    def check(self, component: str, waiting_for: Callable[[], str]) -> None:
        """Ask `waiting_for` whenever readiness is asked."""
        self._checks[component] = waiting_for

    def tell(self, component: str, ask: Callable[[], object]) -> None:
        """Show what `ask` returns (a JSON value) whenever health is asked: good to know, neither
        good nor bad.
        """
        self._told[component] = ask

    def status(self) -> Status:
        """The state now."""
        waits = {name: ask() for name, ask in sorted(self._checks.items())}
        said = {name: ask() for name, ask in sorted(self._told.items())}
        return Status(
            dict(sorted(self._red.items())),
            {name: text for name, text in waits.items() if text},
            said,
        )
