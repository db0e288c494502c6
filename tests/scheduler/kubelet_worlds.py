"""Exact kubelets next to the cluster's information about them: a production report, unconfirmed
pods, and every state that is consistent with both, enumerated over the kubelet model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from services.exporter import core as exporter
from services.scheduler.explain.undecided import DEPENDS_ON_STATE, of_pod
from services.scheduler.filter.topology.fit import search_result
from services.scheduler.preempt.search import admissions
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from services.simulator import reading
from shared.domain.effective import effective_request
from shared.domain.pod import Container, ContainerKind, Pod, Qos
from shared.domain.refusal import Reason
from shared.domain.report import Freshness, Report
from shared.events.cluster_events import PodRunning
from shared.kubelet.admission import admit, drop_stale, remove, start_containers
from shared.kubelet.machine import KubeletState
from shared.ledger.fingerprints import has_unconfirmed
from shared.ledger.state import ZoneAmounts
from tests.kubelet.machines import GIB, GPU, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.objects import compare, through_object

NODE = "n"
# Share of the unconfirmed pods that were bound although the kubelet has no room for them.
STRAY = 0.1
# A scene with more states counts as undecided.
MOST_STATES = 4000
# A search that needs more steps counts as undecided.
MOST_STEPS = 60_000

Truth = Literal["admitted", "refused", "endangers", "undecided"]


class Scene(msgspec.Struct, frozen=True):
    """A kubelet as its report shows it (`base`), pending pods since then, the uids of the pods
    among them that were observed to run, and the pod to be decided.
    """

    base: KubeletState
    unconfirmed: tuple[Pod, ...]
    pod: Pod
    running: frozenset[str] = frozenset()


def scene(
    seed: int,
    policy: str,
    scope: str,
    zones: int | None = None,
    unconfirmed: int = 3,
    running: float = 0.0,
    between: float = 0.0,
    as_object: bool = False,
    **settings: Any,
) -> Scene:
    """Return a random scene: 1 to 3 zones if their number is not given, a few running pods, and up
    to `unconfirmed` pods that were bound after the report, a share of which is observed to be
    `running`. On more than three zones some pods request more than a zone or two have. A share of
    the devices lies `between` two zones. `as_object`: rejected pods left nothing, because
    the node's history has none.
    """
    rng, heard = random.Random(seed), random.Random(f"{seed} heard")
    count = zones or rng.randint(1, 3)
    gpus = with_some_between(f"{seed} between", count, gpus_of_zones(rng, count), between)
    scale = rng.choice((1, 1, count // 2)) if count > 3 else 1
    base = kubelet(
        count, policy, scope, cores_per_zone=rng.choice((2, 4)), gpus=gpus or {"g": 1}, **settings
    )
    for number in range(rng.randint(0, 3)):
        started = _ran(base, random_pod(rng, f"settled{number}", True, scale))
        base = started if not as_object or len(started.pods) > len(base.pods) else base
    base, came, runs = drop_stale(base), [], set()
    state = base
    for number in range(rng.randint(0, unconfirmed)):
        verdict = admit(state, pod := random_pod(rng, f"unsettled{number}", True, scale))
        if verdict.admitted or rng.random() < STRAY:
            state = verdict.state
            came.append(pod)
        if verdict.admitted and heard.random() < running:
            runs.add(pod.uid)
    return Scene(base, tuple(came), random_pod(rng, "decided", True, scale), frozenset(runs))


def gpus_of_zones(rng: random.Random, zones: int) -> dict[str, int]:
    """Return up to two devices in each zone, with their mask."""
    return {f"g{z}-{i}": 1 << z for z in range(zones) for i in range(rng.randint(0, 2))}


def with_some_between(seed: str, zones: int, gpus: dict[str, int], share: float) -> dict[str, int]:
    """Put a share of the devices into a second zone, too. It is drawn separately, so that the scene
    of a seed is otherwise the same.
    """
    rng = random.Random(seed)
    drawn = {name: rng.random() < share for name in gpus}
    return {
        name: mask | (1 << rng.randrange(zones)) if drawn[name] else mask
        for name, mask in gpus.items()
    }


def _ran(state: KubeletState, pod: Pod) -> KubeletState:
    """Return the kubelet with the pod running, unchanged if it rejects the pod."""
    verdict = admit(state, pod)
    return start_containers(verdict.state, pod) if verdict.admitted else drop_stale(verdict.state)


def random_pod(rng: random.Random, name: str, wide: bool = False, scale: int = 1) -> Pod:
    """Return a pod of one to three containers, sometimes with an init container or a sidecar first,
    and mostly Guaranteed. `wide` adds requests for more memory than a single zone has, and for
    hugepages.
    """
    kinds: list[ContainerKind] = [
        rng.choice(("init", "sidecar")) for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))
    ]
    kinds += ["app"] * rng.choice((1, 1, 2))
    sizes = rng.choice(((1, 2, 3), (1, 2), (2, 4, 6)))
    containers = tuple(
        _container(rng, f"c{at}", kind, sizes, wide, scale) for at, kind in enumerate(kinds)
    )
    qos: Qos = "Guaranteed" if rng.random() < 0.9 else "Burstable"
    return Pod(name, "ns", name, qos, containers)


def _container(
    rng: random.Random, name: str, kind: ContainerKind, sizes: Sequence[int], wide: bool, scale: int
) -> Container:
    asked = {
        "cpu": rng.choice(sizes) * 1000,
        "memory": rng.choice((1, 8, 20, 30, 50, 80) if wide else (1, 8, 20, 30, 50)) * GIB,
    }
    if rng.random() < 0.15:
        asked["cpu"] = 500
    if rng.random() < 0.3:
        asked[GPU] = rng.choice((1, 1, 2))
    if wide and rng.random() < 0.15:
        asked["hugepages-2Mi"] = rng.choice((1, 2, 3)) * GIB
    if scale > 1:
        asked = {name: amount * scale for name, amount in asked.items()}
    return Container(name, kind, asked, asked)


def report_of(state: KubeletState, stored: bool = False) -> Report:
    """Return a production exporter's report about this kubelet, with its checkpoints if they are
    `stored`.
    """
    return report_at(drop_stale(state), stored)


def report_at(state: KubeletState, stored: bool, time_ms: int = 1) -> Report:
    """Return the report about a kubelet that may still hold resources of ended pods."""
    pods = (active.pod for active in state.pods.values())
    return exporter.report(
        NODE,
        "test",
        reading.scan(state, pods, Freshness("boot", time_ms), stored),
        exporter.Rules(),
    )


def free_of(state: KubeletState) -> ZoneAmounts:
    """The truly free amounts by zone: holdings of init containers, which podresources hides, are
    not free.
    """
    state = drop_stale(state)
    free: ZoneAmounts = {}
    for zone, mask in state.kubelet.cpu.topology.numa_mask.items():
        free[zone] = {"cpu": (state.cpu.available(state.kubelet.cpu) & mask).bit_count() * 1000}
        free[zone] |= {name: table.free for name, table in state.memory.nodes[zone].tables.items()}
        for name, pool in state.devices.registered.items():
            available = state.devices.available(name)
            free[zone][name] = sum(
                1
                for each, device in pool.items()
                if (device.mask or 0) >> zone & 1 and each in available
            )
    return free


def any_state(seed: int, policy: str, scope: str, between: float = 0.0) -> KubeletState:
    """Return a kubelet with pods, some of which have ended."""
    rng, state = random.Random(seed), scene(seed, policy, scope, between=between).base
    for number in range(rng.randint(0, 4)):
        state = admit(state, random_pod(rng, f"more{number}")).state
    for uid in [uid for uid in state.pods if rng.random() < 0.4]:
        state = remove(state, uid)
    return drop_stale(state)


def world_of(
    seen: Scene, config: CycleConfig, checkpoints: bool = True, as_object: bool = False
) -> World:
    """Return a ledger with all pods and the production report, which confirms the running ones."""
    world = proven_world(seen.base, config, checkpoints, as_object=as_object)
    for pod in seen.unconfirmed:
        world.bound(pod, NODE)
    for pod in seen.unconfirmed:
        if pod.uid in seen.running:
            world.running(pod, NODE)
    return world


def proven_world(
    state: KubeletState,
    config: CycleConfig,
    checkpoints: bool = True,
    not_yet_running: Collection[str] = (),
    as_object: bool = False,
) -> World:
    """Return a ledger with the pods of this kubelet, each confirmed by a production report, on a
    node that has enough of every node resource. `as_object`: the report comes as
    a NodeResourceTopology object.
    """
    world = World(config)
    offered = {**dict.fromkeys(_resources(state), 1 << 50), **offered_devices(state)}
    world.observe(NODE, allocatable=offered, unhealthy=unhealthy_devices(state))
    if as_object:
        empty = state
        for uid in state.pods:
            empty = remove(empty, uid)
        world.report(through_object(report_of(empty, checkpoints)))
    for active in state.pods.values():
        world.bound(active.pod, NODE)
    report = report_of(state, checkpoints)
    world.report(through_object(report, 2) if as_object else report)
    if as_object:
        compare(world, NODE)
    for active in state.pods.values():
        if active.pod.uid not in not_yet_running:
            world.fold(f"pod/{active.pod.uid}", PodRunning(active.pod.uid, NODE))
    return world


def _resources(state: KubeletState) -> set[str]:
    tables = {name for node in state.memory.nodes.values() for name in node.tables}
    return {"cpu", "memory", "pods", "hugepages-2Mi", "hugepages-1Gi", *tables}


def offered_devices(state: KubeletState) -> dict[str, int]:
    """Return the devices that a kubelet offers: the healthy ones, with or without zones."""
    return {
        name: sum(device.healthy for device in pool.values())
        for name, pool in state.devices.registered.items()
    }


def unhealthy_devices(state: KubeletState) -> dict[str, int]:
    """Return the unhealthy devices, which the kubelet counts in addition."""
    counted = {name: len(pool) for name, pool in state.devices.registered.items()}
    return {
        name: counted[name] - healthy
        for name, healthy in offered_devices(state).items()
        if counted[name] > healthy
    }


# -- the truth
# --------------------------------------------------------------------------------------------------


def truth(seen: Scene) -> Truth:
    """Return the answer of every consistent state. Pending admissions come in any order or not at
    all, and start at any time; running pods have started. A pod that may be rejected even without
    the new pod does not count.
    """
    pods = {pod.uid: pod for pod in seen.unconfirmed}
    moments_before = _explored([(seen.base, frozenset(pods))], pods, seen.running)
    if moments_before is None:
        return "undecided"
    moments_after: list[_Moment] = []
    for state, coming in moments_before.moments:
        states, refused = _successors(state, seen.pod)
        if refused:
            return "refused"
        moments_after += [(each, coming) for each in states]
    moments = _explored(moments_after, pods)
    if moments is None:
        return "undecided"
    doomed = {_kind(pods[uid]) for uid in moments_before.doomed}
    return (
        "endangers" if any(_kind(pods[uid]) not in doomed for uid in moments.doomed) else "admitted"
    )


def searched_truth(seen: Scene, checkpoints: bool = True) -> Truth:
    """Return the answer of the hint providers for every state and order, without bounds and with
    many steps. It is ten times as fast as the kubelet model, against which it is tested, and finds
    a bound that promises too much."""
    cluster = world_of(seen, CycleConfig(), checkpoints).cluster
    pod_class, node_info = cluster.evaluator.pod_class(seen.pod), cluster.node(NODE)
    assert node_info is not None
    plan, _ = cluster.evaluator.plan(pod_class, node_info)
    result = search_result(node_info, plan, MOST_STEPS) if plan.mode != "free" else "admitted"
    return "undecided" if result == "unknown" else result


_Moment = tuple[KubeletState, frozenset[str]]


class _Explored(msgspec.Struct):
    moments: list[_Moment]
    doomed: set[str]


def _kind(pod: Pod) -> str:
    return repr((pod.qos, pod.containers))


def _explored(
    starts: Iterable[_Moment], pods: dict[str, Pod], running: frozenset[str] = frozenset()
) -> _Explored | None:
    """Return every later state in which the pods that are reported as running do run, with the pods
    that were rejected before it.
    """
    moments: dict[Hashable, _Moment] = {}
    comes_from: dict[Hashable, list[Hashable]] = {}
    refusals: list[tuple[str, Hashable]] = []
    pending: list[tuple[_Moment, Hashable]] = [(start, None) for start in starts]
    while pending:
        (state, coming), earlier = pending.pop()
        key = _key(state), coming
        comes_from.setdefault(key, []).append(earlier)
        if key in moments:
            continue
        moments[key] = state, coming
        if len(moments) > MOST_STATES:
            return None
        for uid in coming:
            states, refused = _successors(state, pods[uid])
            if refused and uid not in running:
                states.append(state)
                refusals.append((uid, (key[0], coming - {uid})))
            pending += [((each, coming - {uid}), key) for each in states]
        pending += [
            ((start_containers(state, pod), coming), key)
            for uid, pod in pods.items()
            if uid in state.pods
        ]
    whole = [key for key, moment in moments.items() if _all_run(moment, pods, running)]
    led = _leading_to(whole, comes_from)
    return _Explored([moments[key] for key in whole], {uid for uid, key in refusals if key in led})


def _all_run(moment: _Moment, pods: dict[str, Pod], running: frozenset[str]) -> bool:
    state, coming = moment
    return not running & coming and all(
        _key(start_containers(state, pods[uid])) == _key(state) for uid in running
    )


def _leading_to(
    ends: Iterable[Hashable], comes_from: dict[Hashable, list[Hashable]]
) -> set[Hashable]:
    leading, pending = set[Hashable](), list(ends)
    while pending:
        if (key := pending.pop()) not in leading:
            leading.add(key)
            pending += comes_from.get(key, ())
    return leading


def _key(state: KubeletState) -> Hashable:
    memory = tuple(
        (number, node.assignments, node.cells, tuple(table.free for table in node.tables.values()))
        for number, node in state.memory.nodes.items()
    )
    devices = tuple(
        (name, tuple(sorted(ids))) for name, ids in sorted(state.devices.in_use.items())
    )
    waiting = tuple(
        sorted((uid, tuple(sorted(held))) for uid, held in state.memory.entries.items())
    )
    return state.cpu.shared, memory, devices, waiting, tuple(sorted(state.pods))


def _successors(state: KubeletState, pod: Pod) -> tuple[list[KubeletState], bool]:
    verdicts = list(admissions(state, pod))
    return [drop_stale(each.state) for each in verdicts if each.admitted], not all(
        each.admitted for each in verdicts
    )


# -- measuring
# --------------------------------------------------------------------------------------------------


class Outcome(msgspec.Struct):
    """How filter results compare with the truth; lists hold seeds. In `bounded` scenes a report
    leaves something undecided, and `bounded_by` counts these by name. Brute force does not know
    their truth either, so their needless refusals are counted separately. `cases` counts special
    properties of scenes, `unmatched` scenes in which no fingerprint confirms the pods, because a
    kubelet counts reserved CPUs as a pod's."""

    passed: int = 0
    refused: int = 0
    undecided: int = 0
    over_budget: int = 0
    unsound: list[int] = []
    refused_needlessly: list[int] = []
    refused_within_bounds: list[int] = []
    unmatched: int = 0
    bounded: int = 0
    bounded_by: dict[str, int] = {}
    cases: dict[str, int] = {}

    def count(self, counts: dict[str, int], names: Iterable[str]) -> None:
        for name in names:
            counts[name] = counts.get(name, 0) + 1


class Made(NamedTuple):
    """A scene, the cluster's information about it, and its special properties by name."""

    seen: Scene
    world: World
    cases: Collection[str] = ()


def measured(
    seeds: Iterable[int],
    policy: str,
    scope: str,
    unconfirmed: int,
    checkpoints: bool = True,
    into: Outcome | None = None,
    by_search: bool = False,
    made: Callable[[int], Made] | None = None,
    as_object: bool = False,
    **settings: Any,
) -> Outcome:
    """Compare one scene for each seed, and add the counts to `into`. With `by_search` the truth is
    `searched_truth`. `made` makes other scenes than plain ones. With `as_object` the report of
    plain scenes is a NodeResourceTopology object.
    """
    outcome = into or Outcome()
    for seed in seeds:
        if made is not None:
            seen, world, cases = made(seed)
        else:
            seen = scene(
                seed, policy, scope, unconfirmed=unconfirmed, as_object=as_object, **settings
            )
            cases = ()
            world = world_of(seen, CycleConfig(), checkpoints, as_object)
        if _exceeds_the_node(seen):
            outcome.refused += 1
            continue
        if as_object and has_unconfirmed(world.ledger.nodes[NODE]):
            outcome.unmatched += 1
            continue
        expected = searched_truth(seen, checkpoints) if by_search else truth(seen)
        refusal = world.cluster.verdict(seen.pod, NODE)
        assert isinstance(world.cluster.place(seen.pod), Placed) is (refusal is None), seed
        if expected == "undecided":
            outcome.undecided += 1
            continue
        outcome.passed, outcome.refused = (
            outcome.passed + (refusal is None),
            outcome.refused + (refusal is not None),
        )
        outcome.over_budget += refusal is not None and refusal.reason is Reason.BRANCH_LIMIT
        if refusal is None and expected != "admitted":
            outcome.unsound.append(seed)
        names = of_pod(world.cluster, seen.pod, NODE)
        outcome.bounded += bool(names)
        outcome.count(outcome.bounded_by, names)
        outcome.count(outcome.cases, cases)
        if refusal is not None and expected == "admitted":
            is_told = f"(undecided: {', '.join(names)})" in refusal.remedy
            assert is_told or not names or refusal.reason not in DEPENDS_ON_STATE, seed
            (outcome.refused_within_bounds if names else outcome.refused_needlessly).append(seed)
    return outcome


def _exceeds_the_node(seen: Scene) -> bool:
    """More CPUs than the node allocates: scheduler and kubelet (OutOfcpu) refuse that by the node's
    amounts, which these scenes leave out. The CPU Manager alone may admit it: of sockets of unequal
    size it counts one with reserved CPUs as free and takes it whole (kubelet 1.36, isSocketFree
    compares with the mean size)."""
    manager = seen.base.kubelet.cpu
    allocatable = (manager.topology.every & ~manager.reserved).bit_count()
    return effective_request(seen.pod).get("cpu", 0) > 1000 * allocatable
