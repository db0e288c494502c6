"""The room for frequent pod classes now. A node is counted again only after it changed."""

from __future__ import annotations

import asyncio

from services.console.live import Live
from services.replay.fragmentation import (
    ClassRoom,
    NodeRoom,
    RoomOfNodes,
    class_room,
    frequent_classes,
)
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.pod_class import key_of

CLASSES = 5


class Rooms:
    """Counts are kept by class and node, with the position at which the node had changed last."""

    def __init__(self, live: Live, cycle: CycleConfig) -> None:
        self._live, self._cycle = live, cycle
        self._kept: dict[tuple[str, str], tuple[int, NodeRoom]] = {}

    async def now(self) -> list[ClassRoom]:
        """Return the room by class. Other requests are answered between two nodes."""
        state, kept = self._live.state, dict[tuple[str, str], tuple[int, NodeRoom]]()
        counter, rooms = RoomOfNodes(state, self._cycle), list[ClassRoom]()
        for frequent in frequent_classes(state.ledger, CLASSES):
            key, counted = key_of(frequent.pod), list[NodeRoom]()
            for name in sorted(state.ledger.nodes):
                node, changed = state.ledger.nodes.get(name), self._live.changed.get(name, 0)
                if node is None or node.observed is None:
                    continue
                room = self._kept.get((key, name))
                if room is None or room[0] != changed:
                    room = changed, counter.of(node, frequent.pod)
                    await asyncio.sleep(0)
                kept[key, name] = room
                counted.append(room[1])
            rooms.append(class_room(frequent, counted))
        self._kept = kept
        return rooms
