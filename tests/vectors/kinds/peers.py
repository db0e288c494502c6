"""Cases from the tests and documents of other NUMA-aware schedulers, as states and pods.

`expect` is what the kubelet does where it admits, and the peer's answer where it only ranks or
preempts. Victims that a peer moves to another node are those of `topolog plan defragment`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from services.replay.defragmenting import defragment
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from tests.scheduler.cycle_worlds import World
from tests.vectors.peers_world import pod_of, world_of
from tests.vectors.registry import has_keys

KIND = "peers"
Json = dict[str, Any]


class Judgement(NamedTuple):
    """The differences from the expected answer, and remarks about a case that passes."""

    differences: list[str]
    remarks: tuple[str, ...] = ()


def recognises(doc: Json) -> bool:
    return has_keys(doc, "id", "peer", "topic", "ask", "nodes", "pods", "expect")


def check(case: Json) -> list[str]:
    return judge(case).differences


def judge(case: Json) -> Judgement:
    """Put the case to the scheduler.

    A node without a report, or with CPUs in no zone, takes no pod that needs them, unless a setting
    says so. The peers have no such settings: if only one makes the difference, the case passes with
    a remark."""
    judgement = _judge(case, world_of(case))
    if not judgement.differences:
        return judgement
    settings: list[tuple[str, Json]] = [("unpinned: *", {"unpinned": ("*",)})]
    if any("zones" not in n and "machine" not in n for n in _nodes(case)):
        settings.append(("on_missing_report: pass", {"on_missing_report": "pass"}))
    for shown, setting in settings:
        passing = _judge(case, world_of(case, **setting))
        if not passing.differences:
            return passing._replace(remarks=(*passing.remarks, f"with {shown}"))
    return judgement


def _nodes(case: Json) -> Iterable[Json]:
    nodes: dict[str, Json] = case["nodes"]
    return nodes.values()


def _judge(case: Json, world: World) -> Judgement:
    if case["ask"] == "place":
        return _placed(case, world)
    pod = pod_of(case["pods"][0])
    differences = (
        _scored(case, world, pod) if case["ask"] == "score" else _evicted(case, world, pod)
    )
    return Judgement(differences)


def _placed(case: Json, world: World) -> Judgement:
    """Place the pods one after another, each bound where it was placed."""
    differences: list[str] = []
    remarks: list[str] = []
    for doc in case["pods"]:
        pod, wanted = pod_of(doc), case["expect"][doc["name"]]
        result = world.cluster.place(pod)
        if not isinstance(result, Placed):
            if wanted is not None:
                differences.append(f"{pod.name}: expected {wanted}, waits: {result.message}")
            continue
        world.bound(pod, result.node)
        zones = sorted({zone for zones in result.predicted.values() for zone in zones})
        if wanted is None:
            differences.append(f"{pod.name}: expected to wait, got {result.node} zones {zones}")
            continue
        nodes = wanted.get("node", result.node)
        if result.node not in ([nodes] if isinstance(nodes, str) else nodes):
            differences.append(f"{pod.name}: expected node {nodes}, got {result.node}")
        if "zones" in wanted and not result.predicted:
            remarks.append("zone not told")
        elif wanted.get("zones", zones) != zones:
            differences.append(f"{pod.name}: expected zones {wanted['zones']}, got {zones}")
    return Judgement(differences, tuple(remarks))


def _scored(case: Json, world: World, pod: Pod) -> list[str]:
    evaluator, differences = world.cluster.evaluator, []
    for name, wanted in case["expect"].items():
        node_info = world.cluster.node(name)
        if node_info is None:
            raise ValueError(f"no node {name}")
        score = evaluator.score(evaluator.pod_class(pod), node_info)
        if abs(score - wanted) > case.get("within", 0):
            differences.append(f"{name}: expected score {wanted}, got {score}")
    return differences


def _evicted(case: Json, world: World, pod: Pod) -> list[str]:
    if isinstance(world.cluster.place(pod), Placed):
        return [f"{pod.name}: fits without an eviction"]
    nomination = world.cluster.nominate(pod, world.ledger.pods, frozenset(), None)
    victims = sorted(nomination.victims) if nomination is not None else []
    if not victims and case["topic"] == "gang":
        plan = defragment(SchedulerState(world.ledger), world.cluster.config, pod, 1)
        victims = [move.uid for step in plan.steps for move in step.moves]
    expect = case["expect"]
    if "count" in expect:
        return [] if len(victims) == expect["count"] else [f"expected {expect}, got {victims}"]
    allowed = [expect["victims"]] if "victims" in expect else expect["any_of"]
    is_expected = victims in [sorted(each) for each in allowed]
    return [] if is_expected else [f"expected {expect}, got {victims}"]
