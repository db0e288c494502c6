"""What the kubelet of a node may look like by the ledger: every state that the report allows, and
the pods on their way.

A proven pod stands where the report lists it, and what its init containers may still hold is told
apart in every way. What is listed for a pod that ended is free; what a live pod held before, in
this boot, it may hold still. Claims of nominees are held for them. Where others are on their way,
they may have come before or after each pod that ended since: `ended_pods`. Not enumerated are the states
of two ended pods of one name, and of a report that was read within an admission. A report without
placements tells amounts by zone and no groups of zones: enough where only single zones are taken,
or none. Must not know the pod that is to be decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from shared.domain.device_zones import between_zones
from shared.domain.policies import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import CPU, is_memory
from shared.hints.admission import KubeletModel, NodeState
from shared.hints.admission_orders import PendingAdmission
from shared.hints.cpu import WHOLE_CORES, by_socket
from shared.hints.devices import UNHEALTHY
from shared.hints.memory import SEVERAL_GROUPS
from shared.hints.observing import ObservedNode, observe
from shared.hints.orders import EndedPod, relevant
from shared.hints.provider import RequestedAmounts
from shared.hints.request import request_of
from shared.hints.splits import TooManyChoicesError, ways
from shared.kubelet.cpu_options import FULL_PCPUS_ONLY
from shared.ledger.charge import WHOLE_POD
from shared.ledger.device_views import as_seen, is_another
from shared.ledger.device_ways import parted, ways_out_of_groups
from shared.ledger.proof import is_seen, residual
from shared.ledger.state import Charge, Ended, LedgerNode, Life, ZoneAmounts
from shared.ledger.unhealthy import given_back
from shared.ledger.view import is_contradicted

MOST_STATES = 64
"""States of one node that are told apart before anybody comes."""

HIDDEN = "hidden init resources"
EARLIER = "pods no longer listed, of whose end nobody heard"
ENDED = "ended pods still held"
NO_PLACEMENTS = "no placements in the report"
TORN = "a report made during an admission"
OTHER_KUBELET = "another kubelet version"

Held = tuple[ZonedAmount, ...]


class KubeletStates(NamedTuple):
    """`bases` are the states before any of the pods on their way (`pending`) is admitted. `ended_pods` are
    those that ended since the report was made, free by now, though others may have come before;
    empty where nobody comes. `bounds` names what of them is only known within bounds, empty where
    the state is known exactly."""

    model: KubeletModel
    bases: tuple[NodeState, ...]
    pending: tuple[PendingAdmission, ...]
    bounds: frozenset[str]
    ended_pods: tuple[EndedPod, ...] = ()


class TooManyStates(NamedTuple):
    """More states than are told apart; `bounds` names why."""

    bounds: frozenset[str]


def kubelet_states(
    node: LedgerNode,
    report: Report,
    charges: Iterable[Charge],
    claims: Mapping[str, ZoneAmounts],
    policy: str,
    scope: str,
    inits: bool,
    devices: RequestedAmounts = (),
) -> KubeletStates | TooManyStates:
    """The node under this policy and scope, for a newcomer with or without init containers that
    asks for these amounts of devices of which the kubelet may see others (`in_doubt`)."""
    if node.listed is None and not _all_free(report):
        if policy != SINGLE_NUMA_NODE or between_zones(report):
            return TooManyStates(frozenset({NO_PLACEMENTS}))
        report = msgspec.structs.replace(report, cpus=None, devices=None, checkpoints=(), hidden=())
    listed, charges = node.listed or {}, list(charges)
    placements = [placement for key in listed for placement in listed[key]]
    if any(_torn(charge, listed.get(charge.key, ()), report) for charge in charges):
        return TooManyStates(frozenset({TORN}))
    ended = [placement for key in _listed_and_ended(node, charges) for placement in listed[key]]
    report, extra = _by_uid(report, charges, ended)
    told: set[str] = set()
    try:
        pending, unsure = _charged(charges, listed, report, told)
        unsure = _freed(node, told) + unsure + _held_or_not(claims.values(), report)
    except TooManyChoicesError:
        return TooManyStates(frozenset(told))
    ended_pods = _gone(node, charges, pending, report)
    told.update([ENDED] if pending and ended_pods != [] else [])
    if pending and (node.freed or ended_pods is None):
        return TooManyStates(frozenset({*told, ENDED}))
    inits = inits or any(
        each.request.inits for each in ended_pods or () if each.request is not None
    )
    fine = inits or bool(extra) or _ids_matter(report, charges, policy)
    try:
        seen = observe(report, [*placements, *extra], policy, scope, fine)
    except TooManyChoicesError:
        return TooManyStates(frozenset({*told, SEVERAL_GROUPS}))
    if seen is None:
        return TooManyStates(frozenset())
    if (
        pending and by_socket(report) and WHOLE_CORES in seen.bounds
    ):  # no layout tells which zones are as good as one
        return TooManyStates(frozenset({*told, WHOLE_CORES}))
    bounds = set(seen.bounds) | told
    bounds.update([OTHER_KUBELET] if is_another(node) else [])
    left = [] if pending else _left(node, charges)
    bases = _bases(seen, left, unsure)
    if bases is not None:
        others = [*(each.request for each in pending), *(each.request for each in ended_pods or ())]
        bases, unhealthy = as_seen(
            node, report, policy, seen.model.managers, bases, others, devices, MOST_STATES
        )
        bounds.update([UNHEALTHY] if unhealthy else [])
    ends = tuple(ended_pods or ()) if pending else ()
    found = frozenset(bounds)
    return (
        TooManyStates(found)
        if bases is None
        else KubeletStates(seen.model, bases, tuple(pending), found, ends)
    )


def order_of_ends_unknown(node: LedgerNode) -> bool:
    """Pods ended of which pods on their way may have been admitted before or after."""
    listed = node.listed or {}
    return len(node.ended) > 1 or any(
        key not in listed or _listed_torn(node, key, ended) for key, ended in node.ended.items()
    )


def _charged(
    charges: Iterable[Charge],
    listed: Mapping[str, tuple[Placement, ...]],
    report: Report,
    bounds: set[str],
) -> tuple[list[PendingAdmission], list[tuple[Held, ...]]]:
    """The pods on their way, and what others may hold beside what the report shows. Raises
    TooManyChoicesError.
    """
    pending: list[PendingAdmission] = []
    unsure: list[tuple[Held, ...]] = []
    for charge in charges:
        if charge.confirmed or not charge.demand:
            told = is_seen(charge, listed.get(charge.key, ()), report)
            unsure += _kept(_untold(charge.zones, report) if told else charge.zones, report, bounds)
        elif charge.confirmed_zones and charge.confirmed_boot == report.boot_id:
            unsure += _held_or_not([charge.confirmed_zones], report)
            bounds.add(EARLIER)
        else:
            pending.append(
                PendingAdmission(
                    request_of(charge.demand), charge.sent_at, charge.runs_at, charge.started_s
                )
            )
    return pending, unsure


def _all_free(report: Report) -> bool:
    """Nothing is held: a report without placements tells as much as one with them."""
    return all(
        each.available == each.allocatable
        for zone in report.zones
        for each in zone.resources.values()
    )


def _ids_matter(report: Report, charges: Sequence[Charge], policy: str) -> bool:
    """Under single-numa-node CPUs of a zone are a number, unless whole cores are asked for or init
    containers leave some.
    """
    if policy != SINGLE_NUMA_NODE or report.options.get(FULL_PCPUS_ONLY) == "true":
        return True
    return any(
        part.kind == "init" for charge in charges if not charge.confirmed for part in charge.demand
    )


def _by_uid(
    report: Report, charges: Sequence[Charge], ended: Sequence[Placement]
) -> tuple[Report, list[Placement]]:
    """What checkpoints say of pods that no listing could be told to be, by their uid: of a proven
    pod, what its init containers hold counts, and their memory waits for the pod to run; the rest
    is in the listing. So is what one that `ended` since is listed with alike: its end gives that
    back. Everybody else's is stale."""
    if all(each.pod for each in report.hidden):
        return report, []
    confirmed = {charge.uid: charge for charge in charges if charge.confirmed}
    listed = Counter((each.container, each.held) for each in ended if not each.pod_uid)
    hidden, extra = [], []
    for each in report.hidden:
        charge = confirmed.get(each.pod_uid)
        if not each.pod and charge is None and listed[each.container, each.held]:
            listed[each.container, each.held] -= 1
        elif each.pod or charge is None:
            hidden.append(each)
        elif any(part.kind == "init" and part.name == each.container for part in charge.demand):
            hidden.append(
                msgspec.structs.replace(
                    each, pod=charge.key, held=tuple(i for i in each.held if is_memory(i.resource))
                )
            )
            extra.append(
                msgspec.structs.replace(
                    each, held=tuple(i for i in each.held if not is_memory(i.resource))
                )
            )
    return msgspec.structs.replace(report, hidden=tuple(hidden)), extra


def _untold(zones: ZoneAmounts, report: Report) -> ZoneAmounts:
    """What no checkpoint tells of a proven pod: where one was read, the listing and the states have
    it.
    """
    if not zones or report.cpus is None or report.devices is None:
        return zones
    read = report.checkpoints
    left = {
        zone: {name: held for name, held in amounts.items() if _manager(name) not in read}
        for zone, amounts in zones.items()
    }
    return {zone: amounts for zone, amounts in left.items() if amounts}


def _manager(name: str) -> str:
    return "cpu" if name == CPU else "memory" if is_memory(name) else "devices"


def _torn(charge: Charge, listed: Sequence[Placement], report: Report) -> bool:
    """Whether the report was read while the kubelet admitted this pod: of one container it shows
    devices and not yet CPUs, of another nothing. What it is being given lies where its hints were
    merged, which cannot be told from what is left."""
    if (
        charge.confirmed
        or charge.alias is not None
        or (charge.confirmed_zones and charge.confirmed_boot == report.boot_id)
    ):
        return False
    return bool(charge.demand) and any(placement.held for placement in listed)


def _left(node: LedgerNode, charges: Sequence[Charge]) -> list[ZonedAmount]:
    """What the report lists for pods that ended and whose name no live pod bears."""
    return [item for key in _listed_and_ended(node, charges) for item in _freed_by(node, key)]


def _listed_and_ended(node: LedgerNode, charges: Sequence[Charge]) -> list[str]:
    live = {charge.key for charge in charges if charge.alias is None}
    return [
        key
        for key in sorted(node.ended)
        if key not in live and key in (node.listed or {}) and not is_contradicted(node, key)
    ]


def _held(node: LedgerNode, key: str) -> Held:
    return tuple(
        [item for placement in (node.listed or {}).get(key, ()) for item in placement.held]
    )


def _freed_by(node: LedgerNode, key: str) -> Held:
    return tuple(
        [
            item
            for placement in given_back((node.listed or {}).get(key, ()), node.report)
            for item in placement.held
        ]
    )


def _gone(
    node: LedgerNode, charges: Sequence[Charge], pending: Sequence[PendingAdmission], report: Report
) -> list[EndedPod] | None:
    """Those that ended, as far as the report may still count them or they may have come since; None
    where nobody can tell. A report that came after an end may have been made before it. One that
    was read while the kubelet admitted a pod lists it without all that it took: with nothing yet,
    it came since; with a part, nobody can tell."""
    listed, found = set(_listed_and_ended(node, charges)), []
    for key, ended in sorted(node.ended.items()):
        if is_contradicted(node, key):  # the report lists it: it holds what is listed
            continue
        told = _listed_life(ended, node.report_position) if key in listed else None
        if key in listed and _listed_torn(node, key, ended):
            if _held(node, key) or ended.lives is None:
                return None
            listed.discard(key)
            told = None
        if key in listed and pending and _may_have_kept(told, (node.listed or {})[key], report):
            return None
        if key in listed and (told is not None or ended.lives is None):
            ended_at, finished_s = (told.ended_at, told.finished_s) if told is not None else (0, 0)
            found.append(EndedPod(_freed_by(node, key), ended=ended_at, finished_s=finished_s))
        elif key in listed or ended.lives is None:
            return None
        found += [
            _came_and_went(life, node.report_position)
            for life in ended.lives or ()
            if life is not told
        ]
    return relevant(pending, found)


def _may_have_kept(told: Life | None, listed: Sequence[Placement], report: Report) -> bool:
    """Whether init containers of who is listed, and ended since, may have held what the listing
    does not show, until the end.
    """
    if told is None:
        return True
    everywhere = tuple(zone.id for zone in report.zones)
    # Nobody remembers where it could stand, nor its uid where no listing tells: anywhere, container
    # by container, is the most.
    possible = {WHOLE_POD: everywhere, **{part.name: everywhere for part in told.demand}}
    uid = next((each.pod_uid for each in listed if each.pod_uid), "unknown")
    return bool(
        residual(Charge(uid, "", 0, told.demand, possible, runs_at=told.runs_at), listed, report)
    )


def _listed_torn(node: LedgerNode, key: str, ended: Ended) -> bool:
    """Whether the report was read while the kubelet admitted who is listed under this name, and
    ended since.
    """
    return not ended.complete and not _is_whole(
        (node.listed or {})[key], _listed_life(ended, node.report_position)
    )


def _is_whole(listed: Sequence[Placement], told: Life | None) -> bool:
    """Has every container that runs what it asked for?"""
    sums = Counter[tuple[str, str]]()
    for placement in listed:
        for item in placement.held:
            sums[placement.container, item.resource] += item.amount
    running = [part for part in told.demand if part.kind != "init"] if told is not None else []
    return bool(running) and all(
        sums[part.name, name] >= held for part in running for name, held in part.amounts.items()
    )


def _listed_life(ended: Ended, report_position: int) -> Life | None:
    """Which of the name the report lists: not one that was sent later, and the last of the others
    where it was proven.
    """
    early = [life for life in ended.lives or () if life.sent_at < report_position]
    return (
        early[-1]
        if len(early) == 1 or (ended.complete and early and early[-1] is (ended.lives or ())[-1])
        else None
    )


def _came_and_went(life: Life, report_position: int) -> EndedPod:
    since = report_position < life.sent_at and life.runs_at > 0
    request, positions = request_of(life.demand), (life.sent_at, life.runs_at, life.ended_at)
    return EndedPod((), request, *positions, since, life.started_s, life.finished_s)


def _kept(zones: ZoneAmounts, report: Report, bounds: set[str]) -> list[tuple[Held, ...]]:
    """What init containers may have left to nobody: in one zone, or out of several where the policy
    lets a container take from several. Raises TooManyChoicesError."""
    zones, between = parted(zones, report)
    bounds.update([HIDDEN] if between else [])
    names = {name for amounts in zones.values() for name in amounts}
    several = sorted(
        name for name in names if not is_memory(name) and _may_spread(name, zones, report)
    )
    single = {
        zone: {name: held for name, held in amounts.items() if name not in several}
        for zone, amounts in zones.items()
    }
    bounds.update([HIDDEN] if several else [])
    found = [_out_of_several(name, zones, report) for name in several]
    found += _ways({zone: held for zone, held in single.items() if held}, HIDDEN, bounds)
    return found + ways_out_of_groups(between, report)


def _may_spread(name: str, zones: ZoneAmounts, report: Report) -> bool:
    """restricted lets those take from several zones who ask for more than one has when it is empty,
    unhealthy devices and reserved CPUs included; of CPUs by socket anybody may."""
    if report.policy == RESTRICTED and not (name == CPU and by_socket(report)):
        largest = max(
            (zone.resources[name].capacity for zone in report.zones if name in zone.resources),
            default=0,
        )
        return any(amounts.get(name, 0) > largest for amounts in zones.values())
    return report.policy in (NONE, BEST_EFFORT, RESTRICTED)


def _out_of_several(name: str, zones: ZoneAmounts, report: Report) -> tuple[Held, ...]:
    """Up to the amount that is held once, in every way. What nobody tells of is reported as
    available.
    """
    step = 1000 if name == CPU else 1
    available = {
        zone.id: zone.resources[name].available for zone in report.zones if name in zone.resources
    }
    rooms = [
        min(amounts.get(name, 0), available.get(zone, 0)) // step for zone, amounts in zones.items()
    ]
    most = max(amounts.get(name, 0) for amounts in zones.values()) // step
    found: list[Held] = []
    for total in range(min(most, sum(rooms)) + 1):
        for taken in ways(total, rooms):
            found.append(
                tuple(
                    [
                        ZonedAmount(name, (zone,), each * step)
                        for zone, each in zip(zones, taken, strict=True)
                        if each
                    ]
                )
            )
        if len(found) > MOST_STATES:
            raise TooManyChoicesError
    return tuple(found)


def _ways(zones: ZoneAmounts, why: str, bounds: set[str]) -> list[tuple[Held, ...]]:
    """Each resource that is held once, in one of these zones, or no more: every amount that may be
    left of it.
    """
    if not zones:
        return []
    bounds.add(why)
    found = []
    for name in sorted({name for amounts in zones.values() for name in amounts}):
        ways: list[Held] = [()]
        for zone, amounts in zones.items():
            ways += [
                (ZonedAmount(name, (zone,), amount),)
                for amount in _steps(name, amounts.get(name, 0))
            ]
        found.append(tuple(ways))
    return found


def _steps(name: str, amount: int) -> list[int]:
    """CPUs and devices one by one; memory whole, as what was reused of it is listed."""
    if is_memory(name):
        return [amount] if amount else []
    step = 1000 if name == CPU else 1
    return list(range(step, amount + 1, step))


def _freed(node: LedgerNode, bounds: set[str]) -> list[tuple[Held, ...]]:
    """Ends since a report without placements settled: what they gave back the report may count as
    used, or not.
    """
    found: list[tuple[Held, ...]] = []
    for freed in node.freed:
        found += [
            tuple([tuple([_negative(item) for item in way]) for way in ways])
            for ways in _ways(freed.zones, ENDED, bounds)
        ]
    return found


def _negative(item: ZonedAmount) -> ZonedAmount:
    return ZonedAmount(item.resource, item.zones, -item.amount)


def _amounts(zones: ZoneAmounts) -> Held:
    return tuple(
        [
            ZonedAmount(name, (zone,), amount)
            for zone, held in zones.items()
            for name, amount in held.items()
        ]
    )


def _held_or_not(many: Iterable[ZoneAmounts], report: Report) -> list[tuple[Held, ...]]:
    """All of it or nothing, and of devices between zones any. What nominees claim is not to be
    taken, but no kubelet knows of it: a newcomer must be admitted either way. Raises
    TooManyChoicesError."""
    both = [parted(zones, report) for zones in many]
    plain = tuple([item for zones, _ in both for item in _amounts(zones)])
    return ([((), plain)] if plain else []) + [
        ways for _, zones in both for ways in ways_out_of_groups(zones, report)
    ]


def _bases(
    seen: ObservedNode, ended_pods: Sequence[ZonedAmount], unsure: Sequence[tuple[Held, ...]]
) -> tuple[NodeState, ...] | None:
    """Every state that the combinations of what is unsure lead to; None for too many. Ends come
    first in `unsure`: what they give back ends where a zone has all that it can have."""
    found = (
        dict.fromkeys(_freed_of(seen.model, states, ended_pods) for states in seen.bases)
        if ended_pods
        else dict.fromkeys(seen.bases)
    )
    for choices in unsure:
        found = dict.fromkeys(
            _changed(seen.model, states, way) for states in found for way in choices
        )
        if len(found) > MOST_STATES:
            return None
    return tuple(found)


def _changed(model: KubeletModel, states: NodeState, held: Held) -> NodeState:
    taken = [item for item in held if item.amount > 0]
    states = _freed_of(model, states, [_negative(item) for item in held if item.amount < 0])
    return (
        tuple(
            [
                manager.hold(state, taken)
                for manager, state in zip(model.managers, states, strict=True)
            ]
        )
        if taken
        else states
    )


def _freed_of(model: KubeletModel, states: NodeState, freed: Sequence[ZonedAmount]) -> NodeState:
    if not freed:
        return states
    return tuple(
        [
            manager.release(state, freed)
            for manager, state in zip(model.managers, states, strict=True)
        ]
    )
