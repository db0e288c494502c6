"""After any sequence of events, a new scheduler finds nothing to reserve that the running one has
not reserved: every change that helps a waiting pod wakes it. The worlds are random.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.fields import Json
from shared.events import streams
from shared.events.cluster_events import PodObserved, PodRunning, Taint
from shared.events.codec import decode
from shared.events.scheduling_events import PodReserved
from tests.ledger.given import held, listed_empty, zone
from tests.scheduler.default.story import ROOMY, Story
from tests.scheduler.default.test_constraints import HOST, ZONE, apart, port, seen, spread

NODES, STEPS, GPU = 5, 40, "vendor.com/gpu"
# Seeds of worlds in which a change woke no pod: a rule was lifted, or a pod could be placed that
# was not the first of its class.
FOUND = (20, 32, 76, 102, 107, 117, 127, 164, 176, 199)
HURRIED = {"steps_node": 1, "steps_last_resort": 2000, "steps_pod": 100_000}
# Seeds of worlds in which a pod was left waiting with small budgets, because waking searched with
# the ordinary budget only.
BY_LAST_RESORT = (23, 41, 151, 219, 286)
POLICIES = ("single-numa-node", "single-numa-node", "restricted", "best-effort")
RULES: tuple[Json, ...] = (
    {},
    {},
    apart(HOST),
    apart(ZONE),
    apart(ZONE, "db"),
    apart(ZONE, kind="podAffinity"),
    spread(ZONE),
    spread(HOST, 2),
    port(8080),
    {"tolerations": [{"key": "old", "operator": "Exists"}]},
    {"nodeSelector": {ZONE: "a"}},
    {"priority": 5},
)


class World:
    """A few nodes of one to three zones. Reports say anything, because this test does not ask
    whether they are true.
    """

    def __init__(self, seed: int, budgets: dict[str, int]) -> None:
        self.draw = random.Random(seed)
        self.story = Story(**budgets)
        self.ledger = self.story.cores[0].ledger
        self.told = 0

    async def begin(self) -> None:
        """Append nodes and their reports."""
        for number in range(NODES):
            await self._change(f"n{number}")
            await self._report(f"n{number}")

    async def step(self) -> str:
        """Append one random event, and return its description."""
        happens = self.draw.choice(
            (
                self.arrives,
                self.arrives,
                self.arrives,
                self.ends,
                self.reports,
                self.changes,
                self.runs,
            )
        )
        self.told += 1
        return f"{happens.__name__} {await happens()}"

    async def arrives(self) -> str:
        made = self._pod(f"p{self.told}", self._node() if self.draw.random() < 0.15 else "")
        await self.story.tell(streams.pod(made.pod.uid), made)
        return made.pod.name

    def _pod(self, name: str, node: str) -> PodObserved:
        draw = self.draw
        amounts = {"cpu": str(draw.choice((1, 2, 3, 6))), "memory": "1Gi"}
        amounts |= {GPU: "1"} if draw.random() < 0.2 else {}
        container: dict[str, Any] = {"resources": {"requests": amounts, "limits": amounts}}
        rule = dict(draw.choice(RULES))
        container |= rule.get("container", {})
        return seen(
            name, node, {"app": draw.choice(("web", "db"))}, **{**rule, "container": container}
        )

    async def ends(self) -> str:
        if not self.ledger.pods:
            return ""
        entry = self.ledger.pods[self.draw.choice(sorted(self.ledger.pods))]
        await self.story.ends(entry.pod)
        return entry.pod.name

    async def runs(self) -> str:
        bound = sorted(uid for uid, entry in self.ledger.pods.items() if entry.node)
        for uid in bound[:1]:
            await self.story.tell(streams.pod(uid), PodRunning(uid, self.ledger.pods[uid].node))
        return ",".join(bound[:1])

    async def changes(self) -> str:
        """Change a node's object, or sometimes end the node."""
        name = self._node()
        if self.draw.random() < 0.1:
            await self.story.node_goes(name)
            return f"{name} gone"
        await self._change(name)
        return name

    async def _change(self, name: str) -> None:
        draw = self.draw
        labels = {HOST: name, ZONE: draw.choice("ab")} if draw.random() < 0.9 else {HOST: name}
        allocatable = {**ROOMY, "cpu": draw.choice((8_000, 24_000)), "pods": draw.choice((4, 110))}
        taints = (Taint("old", "", "NoSchedule"),) if draw.random() < 0.2 else ()
        await self.story.node(
            name,
            labels=labels,
            allocatable=allocatable,
            taints=taints,
            unschedulable=draw.random() < 0.05,
        )

    async def reports(self) -> str:
        name = self._node()
        await self._report(name)
        return name

    async def _report(self, name: str) -> None:
        draw = self.draw
        number = int(name[1:])
        node = self.ledger.nodes.get(name)
        names = (
            [charge.key.partition("/")[2] for charge in node.charges.values()]
            if node is not None
            else []
        )
        placements = [
            held(pod, draw.randrange(2), draw.choice((1, 2, 3)))
            if draw.random() < 0.85
            else listed_empty(pod)
            for pod in sorted(names)
            if draw.random() < 0.7
        ]
        zones = [
            zone(at, 8, draw.choice((0, 1, 2, 4, 8)), 2, draw.randrange(3))
            for at in range(1 + number % 3)
        ]
        policy, boot = POLICIES[number % len(POLICIES)], f"boot-{draw.random() < 0.05}"
        settings: dict[str, Any] = {"policy": policy, "boot": boot, "tracked": ("cpu", GPU)}
        await self.story.report(
            *zones, node=name, at=self.told + 1, placements=tuple(placements), **settings
        )

    def _node(self) -> str:
        return f"n{self.draw.randrange(NODES)}"


@pytest.mark.parametrize(
    ("seed", "budgets"),
    [*((seed, {}) for seed in (*range(20), *FOUND)), *((seed, HURRIED) for seed in BY_LAST_RESORT)],
)
async def test_a_scheduler_that_begins_now_finds_no_missed_placement(
    seed: int, budgets: dict[str, Any]
) -> None:
    world, happened = World(seed, budgets), list[str]()
    await world.begin()
    for step in range(STEPS):
        happened.append(await world.step())
        await world.story.decide()
        if step % 4 == 3:
            begun = SchedulerCore(
                CoreConfig(cycle=CycleConfig(**budgets), dirty_after_rejections=3)
            )
            for envelope in await world.story.log.read(0, 10_000):
                begun.evolve(envelope, decode(envelope))
            drafts = [draft for proposal in begun.decide(100) for draft in proposal.drafts]
            assert [
                draft.event for draft in drafts if isinstance(draft.event, PodReserved)
            ] == [], happened[-6:]
