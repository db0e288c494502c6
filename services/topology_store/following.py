"""The fold of the log in the topology-store, which a snapshot keeps: the state of each node.

The store folds its own events when they are appended, and reads them here again: events that a
node's state contains already are passed over. Must not know the bus.
"""

from __future__ import annotations

import msgspec

from services.topology_store import core
from services.topology_store.core import NodeState
from shared.domain.state_hash import state_hash
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved
from shared.events.envelope import Envelope

PREFIX = "report/"

Nodes = dict[str, NodeState]

_decoder = msgspec.json.Decoder(Nodes)


def evolve(nodes: Nodes, envelope: Envelope, event: Event) -> None:
    """Fold one event: of a report stream, or of a Node object."""
    if isinstance(event, NodeObserved | NodeEnded):
        node = nodes.setdefault(event.name, core.initial())
        core.fold_node_object(node, event)
    elif envelope.stream.startswith(PREFIX):
        node = nodes.setdefault(envelope.stream.removeprefix(PREFIX), core.initial())
        if envelope.version > node.version:
            core.evolve(node, event, envelope.version, envelope.time_us // 1000)
    else:
        return
    core.drop_report(node)


def pass_over(nodes: Nodes, envelope: Envelope) -> None:
    if not envelope.stream.startswith(PREFIX):
        return
    node = nodes.get(envelope.stream.removeprefix(PREFIX))
    if node is not None:
        node.version = max(node.version, envelope.version)


def digests(nodes: Nodes) -> dict[str, tuple[int, str]]:
    """Return the version of each node's stream and a hash of its state: at equal versions hashes
    are equal (S6). Expired nodes are left out, because their state depends on when they
    left."""
    return {
        name: (node.version, _digest(node))
        for name, node in nodes.items()
        if node.report and not node.expired
    }


def _digest(node: NodeState) -> str:
    fields = (
        node.version,
        node.report,
        node.superseded,
        node.refused,
        node.deltas,
        node.locked,
        node.released,
    )
    return state_hash(fields)


def dump(nodes: Nodes) -> bytes:
    return msgspec.json.encode(nodes)


def load(data: bytes) -> Nodes:
    """Decode a snapshot. Raises msgspec.MsgspecError."""
    return _decoder.decode(data)
