"""After the faults: everything is repaired and runs until nothing moves; then what must come about
has come about.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.reserve.exclusions import LONGEST_S
from shared.domain.gang import Gang
from shared.domain.manifest import pod_from_manifest
from shared.domain.pod import Pod
from shared.events.catalog import Event
from shared.events.cluster_events import PodObserved
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import DemandWeighed
from shared.events.streams import DEMAND
from shared.ledger.view import compute_free_min
from tests.simulation.manifests import OURS
from tests.simulation.node import SimNode
from tests.simulation.process import Process
from tests.simulation.profile import OWNING, known_faults
from tests.simulation.world import Broken, World

QUIET = {
    "create",
    "delete",
    "clean",
    "foreign",
    "nominate",
    "finish",
    "tick",
    "scan",
    "read",
    "heal",
    "renew",
    "back up",
    "check",
    "book",
    "unbook",
}
CALM = frozenset(known_faults(OWNING)) | QUIET
ROUNDS = 60
ACTIONS = 4000
ROUND_MS = 6_000


def check(world: World) -> None:
    """Stop the faults and judge."""
    _nodes_gone_while_nobody_binds(world)
    _repair(world)
    _rest(world)
    _caught_up(world)
    _no_gang_is_held_in_part(world)
    _end_all(world)
    if booked := [uid for uid, pod in world.checks.audit.ledger.pods.items() if pod.booking]:
        for uid in booked:
            world.do("unbook", uid, partial(world.unbook, uid))
        _rest(world)
        _end_all(world)
    if any(
        scheduler.state.exclusions.nodes or scheduler.state.exclusions.barred
        for scheduler in world.schedulers
    ):
        world.do("tick", "as long as a node is set aside at most", lambda: _pause(world, LONGEST_S))
        _rest(world)
        _end_all(world)
    _ends_are_told(world)
    _nominations_are_followed(world)
    _list_beside_watches(world)
    _nobody_waits_in_vain(world)
    for pod in world.api.live():
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        world.do("delete", name, lambda name=name, uid=uid: world.api.delete(name, uid))  # type: ignore[misc]
    _rest(world)
    _caught_up(world)
    _drained(world)


def _ends_are_told(world: World) -> None:
    """S9: no ended pod stays in the ledger, even without a list next to a watch."""
    existing = {pod["metadata"]["uid"] for pod in world.api.pods()}
    if gone := sorted(set(world.checks.audit.ledger.pods) - existing):
        raise Broken(f"S9: the cluster has no pods {gone}, the ledger does")


def _nominations_are_followed(world: World) -> None:
    """S9: amounts are kept for nominated pods, once each, until the nomination ends; then our pods
    need not wait for them.
    """
    meant = {
        pod["metadata"]["uid"]: node
        for pod in world.api.live()
        if (node := _nominated(pod)) and not pod["spec"].get("nodeName")
    }
    for scheduler in world.schedulers:
        nominated = {
            uid: each.node
            for uid, each in scheduler.state.folded.cluster_objects.nominations.items()
        }
        if nominated != meant:
            raise Broken(f"S9: {scheduler.name} keeps room for {nominated}, nominated are {meant}")
    for uid in meant:
        world.do("nominate", uid[:6], lambda uid=uid: world.api.nominate(uid, ""))  # type: ignore[misc]
    if meant:
        _rest(world)
        _end_all(world)


def _nominated(pod: dict[str, Any]) -> str:
    return (
        str(pod["status"].get("nominatedNodeName") or "")
        if pod["spec"]["schedulerName"] != OURS
        else ""
    )


def _list_beside_watches(world: World) -> None:
    """The observer's period passes: changes that the watch lacks are recorded only then."""
    end_before = world.log.end
    for kind, scheduler in [
        (kind, each) for each in world.schedulers for kind in each.follows if each.asks
    ]:
        if scheduler.follows[kind].watching:
            world.do(
                "check",
                f"{scheduler.name} {kind}",
                partial(scheduler.check, kind),
            )
    _rest(world)
    if world.log.end > end_before:
        world.marks.add("untold until a list beside the watch")
        _end_all(world)


def _end_all(world: World) -> None:
    """End the running pods, and then the pods that waited for their resources."""
    while any(node.running() for node in world.nodes):
        for node in world.nodes:
            for uid in node.running():
                world.do("finish", f"{node.name} {uid[:6]}", partial(node.finish, uid))
        _rest(world)


def _pause(world: World, pause_s: float) -> None:
    """Time passes unseen: a store that received nothing meanwhile calls no node silent."""
    world.clock.now_ms += int(pause_s * 1000)


def _nodes_gone_while_nobody_binds(world: World) -> None:
    """L5: a reservation on a node that is gone, or replaced, is withdrawn without a binder. Few
    nodes are gone in the end: in every second world a node with a reservation ends, if there is
    one.
    """
    for node in world.nodes if world.seed % 2 else ():
        if not node.down and _reserved_on(world, node.name):
            world.do("remove node", node.name, node.remove)
            break
    if not any(node.down for node in world.nodes):
        return
    for binder in world.binders:
        if binder.alive:
            world.do("crash", binder.name, binder.crash)
    _repair(world, world.binders)
    _rest(world, frozenset({"start", "rejoin"}))
    pods = world.checks.audit.ledger.pods
    for name, ledger_node in world.checks.audit.ledger.nodes.items():
        since = (
            ledger_node.observed_at
            if ledger_node.observed is not None
            else world.checks.audit.ledger.position
        )
        if waiting := [uid for uid in _reserved_on(world, name) if pods[uid].reserved_at <= since]:
            raise Broken(f"L5: {name} is gone or another, and still reserved there are {waiting}")


def _reserved_on(world: World, name: str) -> list[str]:
    """Return the pods that are reserved there and have no intent yet."""
    ledger = world.checks.audit.ledger
    return (
        [uid for uid in ledger.nodes[name].charges if ledger.pods[uid].stage == "reserved"]
        if name in ledger.nodes
        else []
    )


def _repair(world: World, but: Sequence[Process] = ()) -> None:
    for process in world.processes:
        if not process.alive and process not in but:
            world.do("start", process.name, process.start)


def _rest(world: World, without: frozenset[str] = frozenset()) -> None:
    """Carry out every action that is no fault, with reports and passing time between rounds, until
    the log stops growing.
    """
    still, last_still = 0, -1
    for _ in range(ROUNDS):
        world.do("tick", "", lambda: _pass_time(world))
        for node in world.nodes:
            world.do("heal", node.name, node.heal)
            if not node.down:
                world.do("scan", node.name, lambda node=node: world.network.publish(node.report()))  # type: ignore[misc]
        _decide_idly(world)
        moved = _work_off(world, without)
        still = still + 1 if world.log.end == last_still and not moved else 0
        last_still = world.log.end
        if still >= 4:
            return
    raise Broken(f"L: the world does not come to rest in {ROUNDS} rounds")


def _decide_idly(world: World) -> None:
    """Let schedulers decide every second, although nothing wakes them."""
    for scheduler in world.schedulers:
        if not scheduler.runs("decide") and scheduler.position >= scheduler.decider._must_reach:
            world.do("decide", scheduler.name, scheduler.decide)


def _pass_time(world: World) -> None:
    """All processes look twice, so that each knows the members whatever the order; a member that
    was counted out learns it.
    """
    if world.profile.rich:
        _listen(world)
    else:
        world.clock.now_ms += ROUND_MS
    for scheduler in world.schedulers:
        scheduler.seat.renew()
    for scheduler in [*world.schedulers, *world.schedulers]:
        scheduler.look()
    for scheduler in world.schedulers:
        if scheduler.alive and scheduler.lease is not None:
            scheduler.renew()
    for binder in world.binders:
        if binder.alive and binder.lease is not None:
            binder.renew()


def _listen(world: World) -> None:
    """Let stores count received reports every second; one of them finds silent nodes."""
    for _ in range(ROUND_MS // 1000):
        world.clock.now_ms += 1000
        for store in world.stores:
            store.silence.account()
    for store in world.stores:
        if not store.runs("expire"):
            store.watch()


def _work_off(world: World, without: frozenset[str]) -> bool:
    """Carry out the offered actions. Return whether one of them changed something."""
    moved = False
    for _ in range(ACTIONS):
        offered = {
            kind: [each for each in acts if not (kind == "lead" and _is_led(world, each[0]))]
            for kind, acts in world.offered().items()
            if kind not in CALM | without
        }
        ready = [
            kind
            for kind in offered
            if offered[kind] and not (kind == "decide" and not _undecided(world))
        ]
        if not ready:
            return moved
        kind = world.rng.choice(ready)
        about, act = world.rng.choice(offered[kind])
        if kind == "decide":
            scheduler = next(each for each in world.schedulers if _wants(each))
            about, act = scheduler.name, scheduler.decide
        moved = moved or kind not in ("deliver", "lead", "decide")
        world.do(kind, about, act)
    raise Broken(f"L: more than {ACTIONS} actions without coming to rest")


def _is_led(world: World, about: str) -> bool:
    rivals = world.binders if "binder" in about.split()[1] else world.schedulers
    return any(rival.lease is not None for rival in rivals)


def _wants(scheduler: object) -> bool:
    from tests.simulation.schedulers import SchedulerProcess

    assert isinstance(scheduler, SchedulerProcess)
    core = scheduler.state
    has_pods = core.queue.ready_count() or core.gangs.changed
    ready = bool(has_pods or core._changed or core.marks._crossed)
    return (
        ready
        and not scheduler.runs("decide")
        and scheduler.position >= scheduler.decider._must_reach
    )


def _undecided(world: World) -> bool:
    return any(_wants(scheduler) for scheduler in world.schedulers)


# -- what must have come about
# --------------------------------------------------------------------------------------------------


def _caught_up(world: World) -> None:
    """Check L1, L3 and L4."""
    for process in [*world.schedulers, *world.binders]:
        if process.position != world.log.end or process.astray:
            raise Broken(f"L1: {process.name} stands at {process.position} of {world.log.end}")
    for binder in world.binders:
        open_work = sorted({*binder.state.work, *binder.state.evictions})
        if open_work:
            raise Broken(
                f"L3: {binder.name} has bindings or evictions without an outcome: {open_work}"
            )
    for rivals in (world.schedulers, world.binders):
        if not any(rival.lease is not None for rival in rivals):
            raise Broken(f"L4: none of {[rival.name for rival in rivals]} leads")


def _nobody_waits_in_vain(world: World) -> None:
    """L2: after every other pod has ended, no empty node would take a pod that still waits."""
    for obj in world.api.live():
        pod = pod_from_manifest(obj)
        if not isinstance(pod, Pod) or obj["spec"].get("nodeName") or pod.scheduler_name != OURS:
            continue
        able = [
            node.name
            for node in world.nodes
            if node.would_admit(pod) and _would_choose(world, node, pod)
        ]
        entry = world.checks.audit.ledger.pods.get(pod.uid)
        if able and _gang_could_start(world, entry.pod if entry is not None else pod):
            stage = (
                f"stage {entry.stage}, {entry.verdict!r}"
                if entry is not None
                else "unknown to the ledger"
            )
            raise Broken(
                f"L2: pod {pod.name} {pod.uid} waits ({stage}) though {able} would admit it"
            )
        world.marks.add("hopeless pod waits")


def _no_gang_is_held_in_part(world: World) -> None:
    """L6 and L7: no gang keeps reservations while too few of its pods have a node, and none keeps
    nodes that was never whole."""
    gangs = world.checks.gangs
    for entry in world.checks.audit.ledger.pods.values():
        gang = entry.pod.gang
        if gang and entry.stage == "reserved" and gangs.placed(gang.key) < gang.minimum:
            raise Broken(f"L6: {entry.pod.key} of {gang.key} is reserved without its gang")
        if gang and gangs.is_in_part(gang.key):
            raise Broken(f"L7: {entry.pod.key} of {gang.key} holds a node without its gang")


def _gang_could_start(world: World, pod: Pod) -> bool:
    """Return whether the pod is in no gang, or whether a scheduler with all nodes, empty, would
    place what its gang lacks.
    """
    gangs, ledger = world.checks.gangs, world.checks.audit.ledger
    if pod.gang is None or len(gangs.bound.get(pod.gang.key, ())) >= pod.gang.minimum:
        return True
    waiting = [e.pod for e in gangs.pods(pod.gang.key) if e.stage == "pending"]
    if gangs.placed(pod.gang.key) + len(waiting) < pod.gang.minimum:
        world.marks.add("a gang lacks pods")
        return False
    observed = [node.observed for node in ledger.nodes.values() if node.observed is not None]
    events: list[tuple[str, Event]] = [(f"node/{node.name}", node) for node in observed]
    events += [
        (f"report/{node.name}", NodeReported(node.report(empty=True))) for node in world.nodes
    ]
    devices = [node.devices for node in ledger.nodes.values() if node.devices is not None]
    events += [(f"devices/{each.node}", each) for each in devices]
    # Pods of a gang are placed in one order, so ranks decide whether unlike ones fit.
    events.append((DEMAND, DemandWeighed(world.schedulers[0].state.folded.wanted)))
    lacking = pod.gang.minimum - gangs.placed(pod.gang.key)
    small = Gang(pod.gang.name, lacking) if lacking > 1 else None
    events += [
        (f"pod/{each.uid}", PodObserved(msgspec.structs.replace(each, gang=small)))
        for each in waiting
    ]
    return _decides(events)


def _would_choose(world: World, node: SimNode, pod: Pod) -> bool:
    """Return whether a scheduler with only this node, empty, would take the pod. If not, faults are
    not the reason why it waits.
    """
    entry = world.checks.audit.ledger.nodes[node.name]
    observed = entry.observed
    if observed is None:
        return True
    events: list[tuple[str, Event]] = [
        ("node/n", observed),
        ("report/n", NodeReported(node.report(empty=True))),
        *([("devices/n", entry.devices)] if entry.devices is not None else []),
        ("pod/p", PodObserved(msgspec.structs.replace(pod, gang=None))),
    ]
    chosen = _decides(events)
    if not chosen:
        world.marks.add("an empty node refused in vain")
    return chosen


def _decides(events: list[tuple[str, Event]]) -> bool:
    """Return whether a new scheduler with these events reserves a node."""
    core = SchedulerCore(CoreConfig(scheduler_name=OURS))
    for number, (stream, event) in enumerate(events, 1):
        core.evolve(Envelope(number, stream, 1, type(event).__name__, 1, b"", 0, "", 0, ""), event)
    return any(proposal.node and proposal.uid for proposal in core.decide(1))


def _drained(world: World) -> None:
    """S9: with no live pods nothing is charged, and everything is surely free."""
    ledger = world.checks.audit.ledger
    if ledger.pods:
        raise Broken(f"S9: no pod lives, the ledger holds {sorted(ledger.pods)}")
    for node in ledger.nodes.values():
        if node.charges or any(node.requested.values()):
            raise Broken(
                f"S9: node {node.name} still carries {sorted(node.charges)} {node.requested}"
            )
        if node.free_min != compute_free_min(node) or (
            node.listed is not None and node.free_min != node.free_max
        ):
            raise Broken(
                f"S9: node {node.name}: lower {node.free_min} is not upper {node.free_max}"
            )
    world.checks.audit.finish()
    if world.checks.audit.violations:
        raise Broken(str(world.checks.audit.violations[0]))
