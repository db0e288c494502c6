"""The nodes of this cell: take nodes that it wants and no cell owns, and give nodes away that
another cell wants.

A node is given away in this order: the core takes no more pods there and withdraws reservations;
one commit ends the node and its pods in this log (`leave`), under the observer's lease; then the
owner's label is removed (`to_give_back`). A crash in between leaves a node without an owner, or one
that still has this one, and the next observer continues.

Pure. Must not know watches or the log."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from services.scheduler.state.state import SchedulerState
from shared.domain.cells import OWNER, Cells
from shared.domain.fields import part
from shared.eventlog.port import ANY_VERSION, Draft
from shared.events import streams
from shared.events.cluster_events import NodeEnded, PodEnded
from shared.events.scheduling_events import NominationWithdrawn

Object = dict[str, Any]
_PATH = "/metadata/labels"
_OWNER_PATH = f"{_PATH}/{OWNER.replace('/', '~1')}"
# Stages in which a binding may still come.
UNDECIDED = ("reserved", "intended")


class SeenNode(NamedTuple):
    """A Node object as it was seen last, and the cells that own and want it."""

    uid: str
    version: str
    owner: str
    wanted: str
    has_labels: bool


class CellNodes:
    """The Node objects of the whole cluster, and the names that `left` under the present lease."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self.seen: dict[str, SeenNode] = {}
        self.left: set[str] = set()

    def note(self, obj: Object, deleted: bool = False) -> None:
        """Note a listed or changed Node object."""
        metadata = part(obj, "metadata")
        name, labels = str(metadata.get("name", "")), part(metadata, "labels")
        if deleted:
            self.seen.pop(name, None)
            return
        wanted = self._cells.of_node(name, labels)
        uid, version = str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))
        self.seen[name] = SeenNode(uid, version, labels.get(OWNER, ""), wanted, bool(labels))

    def keep(self, present: Collection[str]) -> None:
        """Forget the nodes that a complete list lacks."""
        self.seen = {name: node for name, node in self.seen.items() if name in present}

    def to_take(self) -> dict[str, list[Object]]:
        """Return the patch of each node that this cell wants and no cell owns."""
        own_name = self._cells.own
        return {
            name: [
                {"op": "test", "path": "/metadata/resourceVersion", "value": node.version},
                *([] if node.has_labels else [{"op": "add", "path": _PATH, "value": {}}]),
                {"op": "add", "path": _OWNER_PATH, "value": own_name},
            ]
            for name, node in self.seen.items()
            if node.wanted == own_name and not node.owner
        }

    def to_leave(self, state: SchedulerState) -> list[str]:
        """Return the nodes that end in this log: others want or own them."""
        leaving = []
        for name, node in self.seen.items():
            is_own, is_wanted = node.owner == self._cells.own, node.wanted == self._cells.own
            if _is_here(state, name):
                self.left.discard(name)
                if not (is_own and is_wanted):
                    leaving.append(name)
            elif is_own and not is_wanted and name not in self.left:
                leaving.append(name)
        return leaving

    def leave(self, state: SchedulerState, name: str) -> tuple[Draft, ...]:
        """Return the events by which a node leaves; none as long as a binding may still come."""
        node, seen = state.ledger.nodes.get(name), self.seen[name]
        if node is None or node.observed is None:
            ended = NodeEnded(name, seen.uid, "moved")
            return (Draft(streams.node(name), ended, ANY_VERSION),)
        pods, versions, drafts = state.ledger.pods, state.versions, list[Draft]()
        if any(pods[uid].stage in UNDECIDED for uid in node.charges):
            return ()
        for uid in sorted(node.claims):
            withdrawn = NominationWithdrawn(uid, name, "node_leaves")
            drafts.append(Draft(streams.pod(uid), withdrawn, versions.get(streams.pod(uid), 0)))
        for uid in sorted(node.charges):
            end = PodEnded(uid, "moved", name)
            drafts.append(Draft(streams.pod(uid), end, versions.get(streams.pod(uid), 0)))
        ended = NodeEnded(name, node.observed.uid, "moved")
        return (
            *drafts,
            Draft(streams.node(name), ended, versions.get(streams.node(name), ANY_VERSION)),
        )

    def to_give_back(self, state: SchedulerState) -> dict[str, list[Object]]:
        """Return the patch of each node that left and that this cell still owns."""
        own_name = self._cells.own
        return {
            name: [
                {"op": "test", "path": "/metadata/resourceVersion", "value": node.version},
                {"op": "test", "path": _OWNER_PATH, "value": own_name},
                {"op": "remove", "path": _OWNER_PATH},
            ]
            for name, node in self.seen.items()
            if node.owner == own_name
            and node.wanted != own_name
            and name in self.left
            and not _is_here(state, name)
        }


def _is_here(state: SchedulerState, name: str) -> bool:
    """Return whether this log has the Node object."""
    node = state.ledger.nodes.get(name)
    return node is not None and node.observed is not None
