"""Decide which objects a list ends, and what must confirm that. Pure.

Absence alone is never enough: an object that one list lacks ends only if the next list lacks it,
too, or if a GET answers that it does not exist. A list also has to be confirmed

- if it is older than what the log holds, or shows pods unbound that were bound: if the next list
  agrees, the cluster was set back (etcd restored from a snapshot);
- if it shows nothing: no watch would report what it did not show.

This module does not know pages, watches or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from typing import NamedTuple

from services.scheduler.state.state import SchedulerState
from services.scheduler.watch.kinds import (
    Observed,
    absent,
    address,
    identity,
    is_set_back,
    known_count,
)
from services.scheduler.watch.pods_and_nodes import is_mass
from shared.kube.port import Kind, Object

# Kinds whose missing objects are checked with GET. Other kinds need a second list.
ASKED_BY_GET: frozenset[Kind] = frozenset({"pods", "nodes"})
# The most GETs for one list; if it lacks more objects, another list is cheaper.
MOST_GETS = 200
# If objects come and go faster than lists are made, each list lacks others. For kinds without GET
# the last of this many lists is then believed.
MOST_LISTS = 5


class WholeList(NamedTuple):
    """A complete list of a kind: identities, its version, and the uids of pods that it shows
    unbound though they are bound.
    """

    kind: Kind
    present: Set[str]
    version: str
    unbound: frozenset[str]


class Doubt(NamedTuple):
    """A list that another list must confirm, and the uids that it was the first to lack. `empty`
    means that it is doubted only because it shows nothing. `lists` counts the lists so far."""

    listed: WholeList
    lacked: frozenset[str]
    empty: bool
    lists: int = 1


class JudgedList(NamedTuple):
    """A list after comparison with an earlier doubted one: the ends of objects that both lack
    (`confirmed`), the ends of objects that only this one lacks (`unconfirmed`), and the number of
    known objects.
    """

    listed: WholeList
    before: Doubt | None
    confirmed: list[Observed]
    unconfirmed: list[Observed]
    known: int
    is_set_back: bool

    @property
    def is_mass(self) -> bool:
        """More objects are missing for the first time than usually end without being observed."""
        return is_mass(len(self.unconfirmed), self.known)

    @property
    def shows_set_back(self) -> bool:
        """The cluster's state seems older than the log, or two lists have shown that it is."""
        return self.is_set_back or (self.before is None and bool(self.listed.unbound))

    @property
    def may_ask(self) -> bool:
        """GETs may confirm what this list is the first to lack."""
        return (
            self.listed.kind in ASKED_BY_GET
            and 0 < len(self.unconfirmed) <= MOST_GETS
            and not self.is_mass
            and not (self.before is None and self.shows_set_back)
        )

    @property
    def is_last(self) -> bool:
        """Enough lists were made of a kind without GET, and this one lacks little."""
        lists = self.before.lists + 1 if self.before is not None else 1
        return lists >= MOST_LISTS and self.listed.kind not in ASKED_BY_GET and not self.is_mass

    def doubt(self, unconfirmed: Collection[Observed]) -> Doubt | None:
        """Return what the next list must confirm, given the ends that nothing has confirmed yet;
        None if the list is believed.
        """
        lists = self.before.lists + 1 if self.before is not None else 1
        if unconfirmed or (self.before is None and self.shows_set_back):
            lacked = frozenset(address(event).uid for event in unconfirmed)
            return Doubt(self.listed, lacked, empty=False, lists=lists)
        if self.before is None and not self.listed.present:
            return Doubt(self.listed, frozenset(), empty=True, lists=lists)
        return None


def judged(state: SchedulerState, listed: WholeList, before: Doubt | None) -> JudgedList:
    """Compare a list with the fold and with the doubted list before it, if any."""
    set_back = is_set_back(state, listed.kind, listed.version)
    version = "" if set_back else listed.version
    confirmed, unconfirmed = list[Observed](), list[Observed]()
    for event in absent(state, listed.kind, listed.present, version):
        lacked_before = before is not None and address(event).uid in before.lacked
        (confirmed if lacked_before else unconfirmed).append(event)
    known_objects = known_count(state, listed.kind)
    return JudgedList(listed, before, confirmed, unconfirmed, known_objects, set_back)


# The most objects that one check keeps; the next check finds the others.
MOST_KEPT = 1000


class Check:
    """A list that is made while the watch continues, compared page by page. It finds objects that
    no list or watch event showed, because a watch that drops an event does not break.

    `version` is the list's. `touched` are objects that the watch reported since the check began:
    their events may be newer than the list."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.version = ""
        self.present: set[str] = set()
        self.touched: set[str] = set()
        self._kept: list[Object] = []

    def compare(
        self, items: Sequence[Object], version: str, has_events: Callable[[Object], bool]
    ) -> None:
        """Compare one page. An object with events may only be late in the watch."""
        self.version = version
        for obj in items:
            name = identity(self.kind, obj)
            self.present.add(name)
            if name not in self.touched and len(self._kept) < MOST_KEPT and has_events(obj):
                self._kept.append(obj)

    def unreported(self) -> list[Object]:
        """Return objects with events that the watch has not reported since."""
        return [obj for obj in self._kept if identity(self.kind, obj) not in self.touched]
