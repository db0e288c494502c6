"""What the topology-store keeps of the log, and all that a snapshot keeps: what is known of each
node, folded from its stream.

The store hears of its own facts when they are appended, and again here; whatever a node's stream
has shown already is passed by. Must not know the bus.
"""

from __future__ import annotations

import msgspec

from services.topology_store import core
from services.topology_store.core import Known
from shared.domain.state_hash import state_hash
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved
from shared.events.envelope import Envelope

PREFIX = "report/"

Nodes = dict[str, Known]

_decoder = msgspec.json.Decoder(Nodes)


def evolve(nodes: Nodes, envelope: Envelope, event: Event) -> None:
    """Fold one fact of any stream: reports, and which names Node objects have."""
    if isinstance(event, NodeObserved | NodeEnded):
        known = nodes.setdefault(event.name, core.initial())
        core.name(known, event)
    elif envelope.stream.startswith(PREFIX):
        known = nodes.setdefault(envelope.stream.removeprefix(PREFIX), core.initial())
        if envelope.version > known.version:
            core.evolve(known, event, envelope.version, envelope.time_us // 1000)
    else:
        return
    core.let_go(known)


def pass_over(nodes: Nodes, envelope: Envelope) -> None:
    """A fact that counts as never told: its stream goes on after it."""
    known = (
        nodes.get(envelope.stream.removeprefix(PREFIX))
        if envelope.stream.startswith(PREFIX)
        else None
    )
    if known is not None:
        known.version = max(known.version, envelope.version)


def digests(nodes: Nodes) -> dict[str, tuple[int, str]]:
    """Node -> the version of its stream, and a hash of what the stream alone says of it: equal
    versions, equal hashes (S6). Without those that are not heard: of one that has left, what is
    kept depends on when that was seen."""
    return {
        name: (known.version, _digest(known))
        for name, known in nodes.items()
        if known.report and not known.expired
    }


def _digest(known: Known) -> str:
    told = (
        known.version,
        known.report,
        known.superseded,
        known.refused,
        known.deltas,
        known.locked,
        known.released,
    )
    return state_hash(told)


def dump(nodes: Nodes) -> bytes:
    """The state as a snapshot keeps it."""
    return msgspec.json.encode(nodes)


def load(data: bytes) -> Nodes:
    """The inverse. Raises msgspec.MsgspecError on anything else."""
    return _decoder.decode(data)
