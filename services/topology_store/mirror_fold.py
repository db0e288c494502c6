"""The mirror's fold: the ledger, and since when silent nodes are silent."""

from __future__ import annotations

import msgspec

from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReportExpired
from shared.ledger import fold
from shared.ledger.alike import share_ledger
from shared.ledger.state import Ledger


class Mirrored(msgspec.Struct):
    """`silent_since_us`: of nodes with an expired report, Unix microseconds of their last
    report."""

    ledger: Ledger = msgspec.field(default_factory=Ledger)
    silent_since_us: dict[str, int] = {}


def evolve(state: Mirrored, envelope: Envelope, event: Event) -> tuple[str, ...]:
    """Fold one event and return the names of the nodes that it touched."""
    touched = fold.evolve(state.ledger, envelope, event)
    if isinstance(event, NodeReportExpired):
        state.silent_since_us[event.node] = envelope.time_us - event.silent_s * 1_000_000
    for name in touched:
        node = state.ledger.nodes.get(name)
        if node is None or not node.expired:
            state.silent_since_us.pop(name, None)
    return touched


def pass_over(state: Mirrored, envelope: Envelope) -> None:
    fold.pass_over(state.ledger, envelope)


def load(data: bytes) -> Mirrored:
    """Decode a snapshot. Raises msgspec.MsgspecError."""
    state = msgspec.json.decode(data, type=Mirrored)
    share_ledger(state.ledger)
    return state
