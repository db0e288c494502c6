"""Recomputes a nomination: the victims, searched again on the state of that moment.

The log has that state except for two things: which nodes were searched (only changed ones, if the
others were searched before), and which victims were spared because an eviction was refused shortly
before. If the answer differs, it says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.snapshot.result import Nomination
from shared.events.scheduling_events import PodNominated
from shared.ledger.state import LedgerPod

UNRECORDED = (
    "the log does not hold which nodes a search looked at, and whom it spared after "
    "a refused eviction"
)


def nominated_again(
    placing: ColumnarPlacing, pods: Mapping[str, LedgerPod], event: PodNominated
) -> tuple[bool, str]:
    """Return (whether the nomination is the same, a note)."""
    anywhere = _found(placing, pods, event, None)
    if _same(event, anywhere):
        return True, ""
    would = (
        f"over all nodes it would be {_text(anywhere, pods)}"
        if anywhere is not None
        else "over all nodes no pod would be evicted"
    )
    return _same(event, _found(placing, pods, event, (event.node,))), f"{would} ({UNRECORDED})"


def _found(
    placing: ColumnarPlacing,
    pods: Mapping[str, LedgerPod],
    event: PodNominated,
    nodes: Collection[str] | None,
) -> Nomination | None:
    spared = {
        uid
        for nominating_pod in pods.values()
        if nominating_pod.nominated
        for uid in nominating_pod.victims
    }
    return placing.nominate(pods[event.uid].pod, pods, spared, nodes)


def _same(event: PodNominated, nomination: Nomination | None) -> bool:
    return nomination is not None and (nomination.node, nomination.victims, nomination.zones) == (
        event.node,
        event.victims,
        event.zones,
    )


def _text(nomination: Nomination, pods: Mapping[str, LedgerPod]) -> str:
    victims = ", ".join(pods[uid].pod.key for uid in nomination.victims)
    return f"nominated to {nomination.node}, evicting {victims}"
