"""Whether a whole list is believed, or another one, later, must agree first. Pure. Must not know
pages, watches or a clock.

A list is doubted that lacks much of what the log holds: what the next one lacks, too, whatever else
that one lacks, ended. So is one that is older than what the log holds, or shows pods waiting that
were bound: where the next one agrees, the cluster was set back (etcd restored from a snapshot). And
so is one that shows nothing: it may lack nothing that is known, but no watch will tell what it did
not show. What little goes between two lists no watch tells either, so that it ends by the newer
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from services.scheduler.state.state import SchedulerState
from services.scheduler.watch import pods_and_nodes
from services.scheduler.watch.kinds import (
    Observed,
    absent,
    address,
    identity,
    is_set_back,
    known_count,
)
from shared.kube.port import Kind, Object


class WholeList(NamedTuple):
    """What a list of a kind has: identities, its version, and the uids of pods that wait there
    though they are bound.
    """

    kind: Kind
    present: Set[str]
    version: str
    adrift: frozenset[str]


class Doubt(NamedTuple):
    """What another list must confirm: the one that is doubted, and the uids of whom it was the
    first to lack. `empty`: it is doubted only because it shows nothing."""

    listed: WholeList
    lacked: frozenset[str]
    empty: bool


class Judged(NamedTuple):
    """A list after the one that is doubted, if any: what both lack, what only this one lacks, of so
    many that are known.
    """

    listed: WholeList
    before: Doubt | None
    confirmed: list[Observed]
    fresh: list[Observed]
    known: int
    is_set_back: bool

    @property
    def is_mass(self) -> bool:
        """More is lacking, for the first time, than ends unseen."""
        return pods_and_nodes.is_mass(len(self.fresh), self.known)

    @property
    def tells_of_set_back(self) -> bool:
        """The cluster's state seems older than what the log holds of it, or, by two lists, is."""
        return self.is_set_back or (self.before is None and bool(self.listed.adrift))

    @property
    def doubt(self) -> Doubt | None:
        """None where the list is believed."""
        if self.is_mass or (self.before is None and self.tells_of_set_back):
            return Doubt(
                self.listed, frozenset(address(event).uid for event in self.fresh), empty=False
            )
        if self.before is None and not self.listed.present:
            return Doubt(self.listed, frozenset(), empty=True)
        return None

    @property
    def ended(self) -> list[Observed]:
        """Who is gone by this list: all whom a list that is believed lacks."""
        return [*self.confirmed, *self.fresh] if self.doubt is None else self.confirmed


def judged(known: SchedulerState, listed: WholeList, before: Doubt | None) -> Judged:
    """What is to be made of a list, where the one before was doubted or there was none."""
    set_back = is_set_back(known, listed.kind, listed.version)
    lacking = absent(known, listed.kind, listed.present, "" if set_back else listed.version)
    confirmed, fresh = list[Observed](), list[Observed]()
    for event in lacking:
        (confirmed if before is not None and address(event).uid in before.lacked else fresh).append(
            event
        )
    return Judged(listed, before, confirmed, fresh, known_count(known, listed.kind), set_back)


MOST_KEPT = 1000
"""Objects that one check keeps at most; the next one finds what is left."""


class Check:
    """One list beside the watch, page by page. `version` is the list's; `touched` is whom the watch
    told of since it began.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.version = ""
        self.present: set[str] = set()
        self.touched: set[str] = set()
        self._kept: list[Object] = []

    def compare(
        self, items: Sequence[Object], version: str, is_news: Callable[[Object], bool]
    ) -> None:
        """One page. What is news may only be on its way."""
        self.version = version
        for obj in items:
            self.present.add(name := identity(self.kind, obj))
            if name not in self.touched and len(self._kept) < MOST_KEPT and is_news(obj):
                self._kept.append(obj)

    def untold(self) -> list[Object]:
        """What was news on its page, and of what no event came since."""
        return [obj for obj in self._kept if identity(self.kind, obj) not in self.touched]
