"""The picture of several cells: a follower for each log. Names of nodes carry their cell."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from services.replay.explain import Story
from services.replay.filters import FilterError, UnknownPod
from services.top import model
from services.top.follow import NEWEST_SHOWN, Follower
from services.top.model import Picture
from shared.eventlog.port import EventLog
from shared.ledger.state import LedgerNode

TOGETHER_S = 0.05


class CellsPicture:
    """One picture of all cells."""

    def __init__(self, logs: Mapping[str, EventLog]) -> None:
        self.followers = {cell: Follower(log) for cell, log in logs.items()}

    async def follow(self) -> AsyncIterator[None]:
        """Fold all logs for ever."""
        async with asyncio.TaskGroup() as group:
            for follower in self.followers.values():
                group.create_task(_fold(follower))
            while True:
                await asyncio.sleep(TOGETHER_S)
                yield

    async def at_head(self) -> None:
        """Fold as far as the logs have events now."""
        await asyncio.gather(*(follower.at_head() for follower in self.followers.values()))

    def picture(self, number: int) -> Picture:
        """Return the sums of all cells, and the rows of their nodes and pods."""
        totals = {cell: follower.totals() for cell, follower in self.followers.items()}
        nodes = [
            node
            for follower in self.followers.values()
            for node in follower.ledger.nodes.values()
            if _is_here(node)
        ]
        resources = model.resources_of(nodes)
        resource = model.resource_at(resources, number)
        parts = {
            cell: follower.picture_of(totals[cell], resource)
            for cell, follower in self.followers.items()
        }
        rates, stages = dict[str, float](), Counter[str]()
        for cell, part in parts.items():
            stages.update(totals[cell].stages)
            for kind, rate in part.rates.items():
                rates[kind] = rates.get(kind, 0.0) + rate
        newest = [
            (each.time, msgspec.structs.replace(each, words=_in(cell, each.words)))
            for cell, part in parts.items()
            for each in part.newest
        ]
        return Picture(
            sum(part.position for part in parts.values()),
            sum(part.head for part in parts.values()),
            len(nodes),
            resource,
            [
                _in(cell, row)
                for cell, part in parts.items()
                for row in part.rows
                if _is_here(self.followers[cell].ledger.nodes[row.name])
            ],
            model.Totals(
                resources,
                [
                    msgspec.structs.replace(row, reason=f"cell {cell}: {row.reason}")
                    for cell, each in totals.items()
                    for row in each.queue
                ],
                sorted(
                    (_in(cell, row) for cell, each in totals.items() for row in each.pods),
                    key=lambda row: row.pod,
                ),
                dict(stages),
            ),
            rates,
            sum(part.rejected for part in parts.values()),
            [event for _, event in sorted(newest, key=lambda pair: pair[0])][-NEWEST_SHOWN:],
        )

    async def node(self, name: str) -> dict[str, Any]:
        """Return one node, named CELL/NODE. Raises FilterError."""
        cell, _, node = name.partition("/")
        if cell not in self.followers:
            raise FilterError(f"{name}: no such cell", "")
        return {"cell": cell, **await self.followers[cell].node(node)}

    async def story(self, uid: str) -> list[Story]:
        """Return the story of a pod in each cell that knows it. Raises FilterError."""
        stories, unknown = list[Story](), None
        for follower in self.followers.values():
            try:
                stories += await follower.story(uid)
            except UnknownPod as error:
                unknown = error
        if not stories and unknown is not None:
            raise unknown
        return stories


async def _fold(follower: Follower) -> None:
    async for _ in follower.follow():
        await asyncio.sleep(0)


def _is_here(node: LedgerNode) -> bool:
    """Return whether a cell has more of a node than its Device object, which every cell has."""
    return node.observed is not None or node.report is not None or bool(node.charges)


def _in(cell: str, part: Any) -> Any:
    """Return a row or a sentence with the cell in front of its node."""
    field = "name" if isinstance(part, model.NodeRow) else "node"
    name = getattr(part, field)
    return msgspec.structs.replace(part, **{field: f"{cell}/{name}"}) if name else part
