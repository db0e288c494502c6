"""A provider of one's own, for tests: licences that live in one zone, although the report shows
some in each.

One provider in the registry for each home and temper: its arguments tell it from its like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from shared.domain.pod import ContainerKind
from shared.domain.report import Placement, Report, ZonedAmount
from shared.hints.provider import NO_OPINION, Observed, RequestedAmounts, Reusable
from shared.kubelet.hint import Hint, Hints

LICENCE = "example.com/licence"
HOME = 1


class LicenceBook(msgspec.Struct, frozen=True):
    """The state is how many licences are left. `strict`: none is handed out where the hint is not
    preferred.
    """

    home: int = HOME
    strict: bool = False

    def single(self, state: int, own: Reusable, asked: RequestedAmounts) -> int:
        return (1 << self.home if state >= asked[0][1] else 0) if asked else NO_OPINION

    def hints(self, state: int, own: Reusable, asked: RequestedAmounts) -> Hints:
        return (
            {LICENCE: [Hint(1 << self.home, True)] if state >= asked[0][1] else []}
            if asked
            else None
        )

    def allocate(
        self, state: int, own: Reusable, asked: RequestedAmounts, kind: ContainerKind, hint: Hint
    ) -> Sequence[tuple[int, Reusable]]:
        wanted = asked[0][1] if asked else 0
        if self.strict and wanted and hint.mask is not None and not hint.preferred:
            return ()
        return ((state - wanted, own),) if state >= wanted else ()

    def release(self, state: int, held: Sequence[ZonedAmount]) -> int:
        return state + sum(
            item.amount for item in held if item.resource == LICENCE and self.home in item.zones
        )

    def hold(self, state: int, held: Sequence[ZonedAmount]) -> int:
        return state - sum(item.amount for item in held if item.resource == LICENCE)

    def after_admission(self, state: int, own: Reusable) -> int:
        return state

    def taken(self, before: int, after: int) -> int:
        return before - after

    def given_back(self, state: int, taken: int) -> int:
        return state + taken

    def later(self, state: int) -> Sequence[int]:
        return ()


class Licences(msgspec.Struct, frozen=True):
    """Licences of the zone `home`, as many as the report shows there, or `left` where that is told:
    one state for each number. `open`: it does not say ahead in which zones it may give some."""

    name: ClassVar[str] = "licences"
    by_amounts: ClassVar[bool] = False

    home: int = HOME
    strict: bool = False
    open: bool = False
    left: tuple[int, ...] = ()

    def owns(self, resource: str) -> bool:
        return resource == LICENCE

    def zones(self, report: Report, resource: str) -> frozenset[int] | None:
        return None if self.open else frozenset({self.home})

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        shown = (
            zone.resources[LICENCE].available
            for zone in report.zones
            if zone.id == self.home and LICENCE in zone.resources
        )
        states = self.left or (sum(shown),)
        return Observed(
            LicenceBook(self.home, self.strict),
            states,
            frozenset({self.name} if len(states) > 1 else ()),
        )
