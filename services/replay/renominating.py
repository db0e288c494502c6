"""Nominating again: whom a nomination evicts, searched once more on the state that it was made on.

The log holds that state but for two things: which nodes were searched (only those that had changed,
where the others had been searched before), and whose eviction was refused shortly before, so that
they were spared. Where the answer differs it says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from services.scheduler.placing import ColumnarPlacing
from services.scheduler.snapshot.result import Nomination
from shared.events.scheduling_events import PodNominated
from shared.ledger.state import LedgerPod

UNRECORDED = "the log does not hold which nodes a search looked at, and whom it spared after a refused eviction"


def nominated_again(
    placing: ColumnarPlacing, pods: Mapping[str, LedgerPod], event: PodNominated
) -> tuple[bool, str]:
    """(whether this nomination is what is found here, what else is to be said of it)."""
    anywhere = _found(placing, pods, event, None)
    if _same(event, anywhere):
        return True, ""
    would = (
        f"over all nodes it would be {_text(anywhere, pods)}"
        if anywhere is not None
        else "over all nodes nobody would be evicted"
    )
    return _same(event, _found(placing, pods, event, (event.node,))), f"{would} ({UNRECORDED})"


def _found(
    placing: ColumnarPlacing,
    pods: Mapping[str, LedgerPod],
    event: PodNominated,
    nodes: Collection[str] | None,
) -> Nomination | None:
    spared = {uid for each in pods.values() if each.nominated for uid in each.victims}
    return placing.nominate(pods[event.uid].pod, pods, spared, nodes)


def _same(event: PodNominated, found: Nomination | None) -> bool:
    return found is not None and (found.node, found.victims, found.zones) == (
        event.node,
        event.victims,
        event.zones,
    )


def _text(found: Nomination, pods: Mapping[str, LedgerPod]) -> str:
    victims = ", ".join(pods[uid].pod.key for uid in found.victims)
    return f"nominated to {found.node}, evicting {victims}"
