"""What pods ask for, counted as facts are folded, and when it is worth a fact.

Counts are volatile, and made again from the ledger; what ranks nodes is the fact alone. Must not
know the log or a clock: what is due is told by how much changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from services.scheduler.reserve.proposals import Proposal
from services.scheduler.score.demand_weights import weighed
from services.scheduler.score.strategies.strategy import Items
from services.scheduler.select.cluster import Cluster
from services.scheduler.select.placing import Placing
from services.scheduler.state.state import SchedulerState
from shared.domain.demand import peak
from shared.domain.resources import Amounts
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.scheduling_events import DemandWeighed, Wanted
from shared.ledger.alike import Kind, kind_of
from shared.ledger.state import LedgerPod

FEWEST, FEWEST_TURNED = 16, 8
"""Changes before demand is weighed again, at least; where a kind of pods began or ceased to wait."""
NODES_A_CHANGE, NODES_A_CHANGE_TURNED = 2, 16
"""In a large cluster a change matters less: it takes one for so many nodes."""


class Weighing:
    """Live pods by kind: those that run, or are on their way to, and those that were refused and
    wait. Nothing is counted where nobody ranks by it."""

    def __init__(self, placing: Placing) -> None:
        self._cluster = (
            placing if isinstance(placing, Cluster) and placing.judging.looks_at_wants else None
        )
        self._known: dict[str, tuple[Kind, bool]] = {}
        self._running: Counter[Kind] = Counter()
        self._waiting: Counter[Kind] = Counter()
        self._changes, self._turned = 0, False

    def follow(self, uid: str, entry: LedgerPod | None) -> None:
        """The pod stands where the ledger has it, or nowhere."""
        if self._cluster is None:
            return
        known = self._known.get(uid)
        waits = entry is not None and not entry.node
        if entry is None or (waits and not entry.verdict):
            if known is not None:
                del self._known[uid]
                self._count(*known, -1)
        elif known is None or known[1] != waits:
            kind = known[0] if known is not None else kind_of(entry.pod)
            if known is not None:
                self._count(*known, -1)
            self._known[uid] = kind, waits
            self._count(kind, waits, 1)

    def _count(self, kind: Kind, waits: bool, more: int) -> None:
        counts = self._waiting if waits else self._running
        counts[kind] += more
        if not counts[kind]:
            del counts[kind]
        self._changes += 1
        self._turned = self._turned or (waits and counts[kind] == (more > 0))

    def proposals(self, folded: SchedulerState) -> list[Proposal]:
        """A fact, where enough has changed for it to say something new."""
        cluster = self._cluster
        if cluster is None or not self._due(len(cluster)):
            return []
        self._changes, self._turned = 0, False
        profile = cluster.aligning()
        if profile is None:
            return []
        whole_pods, tracked = profile[1].scope == "pod", profile[2]
        running, waiting = (
            _asked(counts, tracked, whole_pods) for counts in (self._running, self._waiting)
        )
        wanted = weighed(running, waiting, cluster.room)
        return [] if _alike(wanted, folded.wanted) else [_proposal(wanted, folded)]

    def _due(self, nodes: int) -> bool:
        if self._changes >= max(FEWEST, nodes // NODES_A_CHANGE):
            return True
        return self._turned and self._changes >= max(FEWEST_TURNED, nodes // NODES_A_CHANGE_TURNED)


def _asked(counts: Counter[Kind], tracked: tuple[str, ...], whole_pods: bool) -> Counter[Items]:
    found: Counter[Items] = Counter()
    for kind, many in counts.items():
        for amounts in _parts(kind, tracked, whole_pods):
            found[tuple(sorted(amounts.items()))] += many
    return found


def _parts(kind: Kind, tracked: tuple[str, ...], whole_pods: bool) -> Iterator[Amounts]:
    """What is aligned together. Init containers leave their room to those after them."""
    demand = kind.demand(tracked)
    if whole_pods and demand:
        yield peak(demand)
    elif not whole_pods:
        yield from (part.amounts for part in demand if part.kind != "init" and part.amounts)


def _alike(one: tuple[Wanted, ...], other: tuple[Wanted, ...]) -> bool:
    """Do both rank nodes alike?"""
    return [(each.amounts, each.weight) for each in one] == [
        (each.amounts, each.weight) for each in other
    ]


def _proposal(wanted: tuple[Wanted, ...], folded: SchedulerState) -> Proposal:
    version, position = folded.versions.get(streams.DEMAND, 0), folded.ledger.position
    draft = Draft(streams.DEMAND, DemandWeighed(wanted), version)
    return Proposal(f"demand/{version}/{position}", (draft,), streams.DEMAND, position)
