"""Exclusions as proposals: for evidence that has no event yet, for reservations that lost too many
races, and to try an excluded node again.

Counts of lost races and times are volatile: a restart begins with none. Must not know the log.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.scheduler.reserve.proposals import Proposal
from services.scheduler.state.exclusions import Exclusions, shape_of
from shared.domain.pod import Pod
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.scheduling_events import NodeReadmitted, NodeSetAside, PodReadmitted
from shared.ledger.state import Ledger

# Races that a pod's reservation on one node may lose in a row.
CONTESTED_AFTER = 5
# Cause -> time until the first retry. Each rejection costs a pod, so those retries are rare.
AGAIN_AFTER_S = {"contested": 5.0, "denied": 60.0, "rejected": 300.0, "barred": 30.0}
LONGEST_S = 3600.0
RACES_LIMIT = 10_000


class ExclusionProposals:
    """Lost races and times of this process."""

    def __init__(self) -> None:
        self._races: dict[tuple[str, str], int] = {}
        self._contested: dict[tuple[str, str], NodeSetAside] = {}
        self._since_s: dict[tuple[str, str], float] = {}
        self._tries: dict[str, int] = {}

    def lost(self, pod: Pod, node: str, exclusions: Exclusions) -> None:
        """Count a conflict of the pod's reservation on this node."""
        key = pod.uid, node
        self._races[key] = races = self._races.pop(key, 0) + 1
        if len(self._races) > RACES_LIMIT:
            del self._races[next(iter(self._races))]
        if races >= CONTESTED_AFTER:
            del self._races[key]
            shape = shape_of(pod)
            strikes = exclusions.strikes.get(node, {}).get(shape, 0) + 1
            detail = f"{races} proposals in a row lost a race for this node"
            self._contested[node, shape] = NodeSetAside(
                node, shape, "contested", detail, pod.uid, 0, strikes
            )

    def won(self, uid: str, node: str) -> None:
        """Forget the pod's lost races: it was reserved there."""
        self._races.pop((uid, node), None)

    def proposals(
        self, exclusions: Exclusions, position: int, versions: Mapping[str, int]
    ) -> list[Proposal]:
        """Return exclusions for evidence without an event. Their ids come from the evidence, so
        that several schedulers append each once.
        """
        events = [event for shapes in exclusions.due.values() for event in shapes.values()] + list(
            self._contested.values()
        )
        self._contested.clear()
        return [_setting(event, position, versions) for event in events]

    def retries(
        self, exclusions: Exclusions, ledger: Ledger, now_s: float, versions: Mapping[str, int]
    ) -> list[Proposal]:
        """Try again what no report has changed, each time after twice the pause."""
        waiting = _waiting(exclusions)
        self._since_s = {key: self._since_s.get(key, now_s) for key in waiting}
        self._tries = {uid: tries for uid, tries in self._tries.items() if uid in ledger.pods}
        proposals = []
        for key, (cause, strikes) in waiting.items():
            name, shape = key
            tries = strikes - 1 if shape else self._tries.get(name, 0)
            if now_s - self._since_s[key] < min(
                LONGEST_S, AGAIN_AFTER_S[cause] * 2 ** min(tries, 12)
            ):
                continue
            if not shape:
                self._tries[name] = tries + 1
            proposals.append(_readmitting(name, shape, ledger.position, versions))
        return proposals


def _waiting(exclusions: Exclusions) -> dict[tuple[str, str], tuple[str, int]]:
    """(node, pod class) or (uid, "") -> (cause, strikes) of what waits for another try."""
    waiting: dict[tuple[str, str], tuple[str, int]] = {
        (uid, ""): ("barred", 1) for uid in exclusions.barred
    }
    for node, shapes in exclusions.nodes.items():
        for shape, exclusion in shapes.items():
            waiting[node, shape] = exclusion.cause, exclusion.strikes
    return waiting


def _setting(event: NodeSetAside, position: int, versions: Mapping[str, int]) -> Proposal:
    stream = streams.node(event.node)
    version = versions.get(stream, 0)
    commit_id = f"aside/{event.node}/{event.shape}/{event.evidence or f'v{version}'}"
    return Proposal(
        commit_id,
        (Draft(stream, event, version),),
        event.node,
        event.evidence or position,
        node=event.node,
    )


def _readmitting(name: str, shape: str, position: int, versions: Mapping[str, int]) -> Proposal:
    """`name` is a node if there is a pod class, else a pod's uid."""
    stream = streams.node(name) if shape else streams.pod(name)
    version = versions.get(stream, 0)
    event = NodeReadmitted(name, shape) if shape else PodReadmitted(name)
    return Proposal(
        f"readmit/{stream}/{shape}/{version}", (Draft(stream, event, version),), name, position
    )
