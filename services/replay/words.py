"""Every event as one sentence for people, with the pod and the node that it is about. Pure.

`topolog replay log`, `topolog top` and the story of a pod use these sentences. Pods are named by
`namespace/name`, never by uid. Zones are named for every pod with a placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from services.scheduler.snapshot.owners import owners_of
from shared.domain.demand import peak
from shared.domain.effective import effective_request
from shared.domain.quantity import format_amount
from shared.domain.report import KOORDLET, Placement, Report
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import ZoneAllocation
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import log_events as log
from shared.events import report_events as report
from shared.events import scheduling_events as scheduling
from shared.events import surroundings_events as surroundings
from shared.events.catalog import Event
from shared.ledger.container_zones import lists_placements
from shared.ledger.state import Charge, LedgerNode
from shared.owned.device_request import PERCENTAGES

PODS_NAMED = 3
WEIGHTS_NAMED = 3
Names = Mapping[str, str]


class Sentence(msgspec.Struct, frozen=True):
    """An event for people: pod (`namespace/name`, "" for none), node ("" for none), and one
    sentence.
    """

    pod: str
    node: str
    text: str


def sentence_of(event: Event, names: Names) -> Sentence:
    """Return the sentence of an event. `names` is the key of a pod by uid."""
    about = event.about
    return Sentence(
        names.get(about.pod, about.pod), about.node, _SENTENCES[type(event)](event, names)
    )


def mentioned(event: Event) -> Iterable[str]:
    """Return the uids of all pods that the sentence names."""
    others = getattr(event, "preemptor", ""), getattr(event, "drawn_from", "")
    yield from (event.about.pod, *others, *getattr(event, "victims", ()))


def amounts_text(amounts: Amounts) -> str:
    """Return a text such as `cpu 4, memory 2Gi`."""
    return ", ".join(
        f"{name} {format_amount(name, amount)}"
        for name, amount in sorted(amounts.items())
        if amount
    )


def zones_list(zones: Iterable[int]) -> str:
    """Return `zone 1`, `zones 0 and 1`, or `zones 0, 1 and 2`."""
    ids = [str(zone) for zone in sorted(zones)]
    if not ids:
        return "no zone"
    return f"zone {ids[0]}" if len(ids) == 1 else f"zones {', '.join(ids[:-1])} and {ids[-1]}"


def by_container(zones: Mapping[str, tuple[int, ...]]) -> str:
    """Return `zone 1` if all containers agree, else `train on zone 1, feed on zone 0`."""
    if len(set(zones.values())) == 1:
        return zones_list(next(iter(zones.values())))
    return ", ".join(
        f"{name or 'the pod'} on {zones_list(ids)}" for name, ids in sorted(zones.items())
    )


def placement_text(
    charge: Charge, predicted: Mapping[str, tuple[int, ...]], node_report: Report | None
) -> str:
    """Return a phrase for the zones where a charged pod is or may be."""
    hint = f", predicted on {by_container(predicted)}" if predicted else ""
    zones_text = "; ".join(
        f"zone {zone}: {amounts_text(amounts)}"
        for zone, amounts in sorted(charge.confirmed_zones.items())
    )
    if node_report is not None and owners_of(node_report).is_owned:
        if charge.allocation is None:
            return "unconfirmed: may be in every zone" if charge.request else "needs no zone"
        seen = f"; the report shows {zones_text}" if zones_text else ""
        return f"allocated {allocation_text(charge.allocation)}{seen}"
    if not charge.demand:
        return "needs no zone"
    if charge.confirmed and node_report is not None and node_report.unlisted and charge.zones:
        unlisted = amounts_text(next(iter(charge.zones.values())))
        hint = f"; {unlisted} counted in {zones_list(charge.zones)}, which no report lists{hint}"
    if charge.confirmed and zones_text:
        return f"confirmed on {zones_text}{hint}"
    if charge.confirmed and node_report is not None and node_report.placements is None:
        # A fingerprint confirms the set of pods, and the report has only sums by zone.
        amounts = amounts_text(peak(charge.demand))
        return f"confirmed by fingerprint: {amounts} in use, zone not reported{hint}"
    if charge.confirmed:
        return f"confirmed: holds nothing in any zone{hint}"
    if zones_text:
        return f"no longer listed, end not reported: may still hold {zones_text}"
    possible = {zone for zones in charge.possible.values() for zone in zones}
    return f"unconfirmed: may be on {zones_list(possible or charge.zones)}{hint}"


def confirmed_by(node: LedgerNode) -> str:
    """Return what in the node's reports confirms charges, "" for nothing."""
    report = node.report
    if report is None:
        return ""
    if report.exporter == KOORDLET:
        return "koordlet's pod-cpu-allocs" if node.listed is not None else ""
    if lists_placements(node):
        return "placements"
    if report.container_zones is not None:
        return "numaplacement and fingerprint"
    if node.listed is not None:
        return "numa-placement-observed and fingerprint"
    return "fingerprint" if report.fingerprint else ""


def some(keys: Iterable[str]) -> str:
    """Return the first names, and the number of the others."""
    listed = sorted(keys)
    more = len(listed) - PODS_NAMED
    return ", ".join(listed[:PODS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _observed(event: cluster.PodObserved, _names: Names) -> str:
    asks = amounts_text(effective_request(event.pod)) or "nothing"
    if event.problem:
        return f"cannot be scheduled: {event.problem}"
    if event.terminating:
        return "is being deleted"
    if event.node:
        whose = "a static pod" if event.static else f"schedulerName {event.pod.scheduler_name}"
        return f"seen on {event.node} ({whose}); requests {asks}"
    gates = (
        f"; held back by {', '.join(event.pod.constraints.gates)}"
        if event.pod.constraints.gates
        else ""
    )
    return f"queued: {event.pod.qos}, requests {asks}{gates}"


_ENDS = {
    "absent_from_list": "gone, its end was not observed",
    "node_ended": "gone with its node",
    "moved": "in another cell now",
}


def _ended(event: cluster.PodEnded, _names: Names) -> str:
    if event.cause == "rejected":
        return f"refused by the kubelet of {event.node}: {event.reason}: {event.message}"
    if event.hops:
        return f"let go to the next cell (hop {event.hops}): {event.message}"
    return f"ended: {_ENDS.get(event.cause, event.cause)}" + (
        f" ({event.reason})" if event.reason else ""
    )


def _node(event: cluster.NodeObserved, _names: Names) -> str:
    flags = [] if event.ready else ["not ready"]
    flags += ["cordoned"] if event.unschedulable else []
    flags += [f"taint {taint.key}:{taint.effect}" for taint in event.taints]
    offers = amounts_text({name: event.allocatable.get(name, 0) for name in ("cpu", "memory")})
    return "; ".join([f"node seen, offers {offers or 'nothing'}", *flags])


def _reported(event: report.NodeReported, _names: Names) -> str:
    it = event.report
    pods = {
        f"{placement.namespace}/{placement.pod}"
        for placement in it.placements or ()
        if placement.held
    }
    free: Amounts = {}
    for zone in it.zones:
        for name, amounts in zone.resources.items():
            free[name] = free.get(name, 0) + amounts.available
    listed = (
        f", {len(pods)} pod(s) on zones" if it.placements is not None else ", without placements"
    )
    return (
        f"reports {len(it.zones)} zone(s), policy {it.policy} by {it.scope}{listed}; "
        f"free: {amounts_text(free) or 'nothing'}"
    )


def placed(listed: Iterable[Placement]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return pod key -> container -> zones, of containers that hold something."""
    placements: dict[str, dict[str, tuple[int, ...]]] = {}
    for placement in listed:
        if placement.held:
            zones = tuple(sorted({zone for item in placement.held for zone in item.zones}))
            placements.setdefault(f"{placement.namespace}/{placement.pod}", {})[
                placement.container
            ] = zones
    return placements


def _changed(event: report.NodeReportChanged, _names: Names) -> str:
    holds = [
        f"{key} on {by_container(zones)}" for key, zones in sorted(placed(event.listed).items())
    ]
    parts = [f"now holds {some(holds)}"] if holds else []
    parts += [f"no longer {some(event.unlisted)}"] if event.unlisted else []
    if not parts and event.available:
        parts = [
            f"free on zone {zone}: {amounts_text(amounts) or 'nothing'}"
            for zone, amounts in sorted(event.available.items())
        ]
    return "reports: " + ("; ".join(parts) or "the same again")


def _volume(event: surroundings.VolumeObserved, _names: Names) -> str:
    return f"volume {event.name} is bound" + (
        ", and not reached from every node" if event.terms or event.zones else ""
    )


def _volumes_limited(event: surroundings.NodeVolumesLimited, _names: Names) -> str:
    limits = ", ".join(f"{number} of {driver}" for driver, number in sorted(event.limits.items()))
    return f"takes volumes: {limits or 'no driver names a limit'}"


def _devices(event: surroundings.NodeDevicesObserved, _names: Names) -> str:
    kinds = Counter(device.type for device in event.devices)
    listed = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "none"
    ill = [f"{device.type} {device.minor}" for device in event.devices if not device.is_healthy]
    text = f"devices: {listed}" + (f"; unhealthy: {', '.join(ill)}" if ill else "")
    return text + (f"; {event.problem}" if event.problem else "")


def _verdict(event: scheduling.PodVerdictChanged, _names: Names) -> str:
    return f"waits: {event.message}"


def _reserved(event: scheduling.PodReserved, names: Names) -> str:
    predicted = zones_of_reservation(event)
    ignored = f"; without effect: {', '.join(event.without_effect)}" if event.without_effect else ""
    if event.predicted and event.certain and event.allocation is None:
        predicted += " with certainty"
    together = f" with {event.gang - 1} more pod(s) of its gang" if event.gang > 1 else ""
    together += "".join(f" in {key} {value}" for key, value in event.gang_domain.items())
    if event.predicted_gpus:
        predicted += f", GPUs {' or '.join(event.predicted_gpus)} predicted"
    best = f"best of {event.candidates} node(s), score {event.score}"
    if event.drawn_from:
        best = f"in the room of {names.get(event.drawn_from, event.drawn_from)}"
    return f"reserved{together}{predicted}; {best}{ignored}"


def _charged(event: scheduling.NodeCharged, _names: Names) -> str:
    if not event.zones:
        return "charged, needs no zone"
    amounts = {amounts_text(zone_amounts) for zone_amounts in event.zones.values()}
    suffix = " each" if len(event.zones) > 1 else ""
    return f"charged in {zones_list(event.zones)}: {' or '.join(sorted(amounts))}{suffix}"


def zones_of_reservation(event: scheduling.PodReserved) -> str:
    """Return what the pod gets if Topolog chooses, else where its kubelet will likely put it."""
    if event.allocation is not None:
        return f", gets {allocation_text(event.allocation)}"
    return f", predicted on {by_container(event.predicted)}" if event.predicted else ""


def allocation_text(allocation: ZoneAllocation) -> str:
    """Return what the pod gets, zone by zone, and its own CPUs."""
    parts = [
        f"{amounts_text(amounts)} of zone {zone}"
        for zone, amounts in sorted(allocation.zones.items())
    ]
    if allocation.cpus:
        parts.append(f"CPUs {allocation.cpus} for itself")
    for card in allocation.devices:
        percent = max((card.resources.get(name, 0) for name in PERCENTAGES), default=0)
        share = "" if percent in (0, 100) else f"{percent} % of "
        functions = "".join(f" function {bus_id}" for bus_id in card.functions)
        parts.append(f"{share}{card.type} {card.minor}{functions}")
    return ", ".join(parts)


def _demand(event: scheduling.DemandWeighed, _names: Names) -> str:
    wants = (
        (
            f"{amounts_text(demand.amounts)} ({demand.running} run, {demand.waiting} wait, "
            f"room for {demand.room})"
        )
        for demand in event.wanted
    )
    first = "; ".join(islice(wants, WEIGHTS_NAMED)) or "nothing"
    return f"in demand, the scarcest room first: {first}"


def _withdrawn(event: scheduling.ReservationWithdrawn, _names: Names) -> str:
    if event.cause == "gang":
        return "reservation withdrawn: too few other pods of its gang still have a node"
    return f"reservation withdrawn: {event.cause.replace('_', ' ')}"


def _nominated(event: scheduling.PodNominated, names: Names) -> str:
    victims = some(names.get(uid, uid) for uid in event.victims)
    return f"nominated; to make room, {len(event.victims)} pod(s) are to be evicted: {victims}"


def _bound(event: binding.PodBound, _names: Names) -> str:
    return (
        "bound"
        + (", as found" if event.found else "")
        + (f" at call {event.attempts}" if event.attempts > 1 else "")
    )


def _for(verb: str) -> Callable[[Any, Names], str]:
    return lambda event, names: f"{verb} for {names.get(event.preemptor, event.preemptor)}"


def _opened(event: log.LogOpened, _: Names) -> str:
    why = (
        f": of the one before, what a reader had up to position {event.lost} was lost"
        if event.lost
        else ""
    )
    return f"the log begins, timeline {event.timeline}{why}"


_HOLD_ENDS: dict[scheduling.HoldEndCause, str] = {
    "placed": "the pod has a node",
    "ended": "the pod has ended",
    "hopeless": "the node would not take the pod even without the other pods",
    "unasked": "no hold-after applies to the pod any more",
}

_SENTENCES: dict[type[Event], Callable[[Any, Names], str]] = {
    log.LogOpened: _opened,
    log.FactsRedacted: lambda event, _: (
        f"personal text was masked in {len(event.rows)} events: {event.reason}"
    ),
    log.FactSkipped: lambda event, _: (
        f"event {event.position} is skipped" + (f": {event.reason}" if event.reason else "")
    ),
    report.NodeReported: _reported,
    report.NodeReportChanged: _changed,
    report.NodeReportExpired: lambda event, _: (
        f"silent for {event.silent_s} s: takes no pod that needs a zone until it reports"
    ),
    report.NodeReleased: lambda event, _: (
        "released: its next report is believed" + (f" ({event.reason})" if event.reason else "")
    ),
    report.NodeReportRefused: lambda event, _: f"a report was refused: {event.reason}",
    cluster.NodeObserved: _node,
    cluster.NodeEnded: lambda event, _: (
        "moved to another cell" if event.cause == "moved" else "the node object is gone"
    ),
    cluster.PodObserved: _observed,
    cluster.PodRunning: lambda event, _: "admitted and running",
    cluster.PodEnded: _ended,
    cluster.ClusterListed: lambda event, _: (
        f"all {event.kind} of the cluster were listed, first on timeline {event.timeline}"
    ),
    surroundings.VolumeObserved: _volume,
    surroundings.ClaimObserved: lambda event, _: (
        f"claim {event.name} is bound to volume {event.volume}"
    ),
    surroundings.NamespaceObserved: lambda event, _: (
        f"namespace {event.name} has {len(event.labels)} label(s)"
    ),
    surroundings.NodeVolumesLimited: _volumes_limited,
    surroundings.NominationObserved: lambda event, _: (
        f"room is kept for {event.key}, for which another scheduler chose the node"
    ),
    surroundings.DeviceClassObserved: lambda event, _: (
        f"DeviceClass {event.name}: its driver gives {event.resource}"
    ),
    surroundings.PodGroupObserved: lambda event, _: (
        f"PodGroup {event.name}: {event.minimum} of its pods are placed together"
    ),
    surroundings.NodeDevicesObserved: _devices,
    surroundings.SurroundingEnded: lambda event, _: (
        f"{event.kind} {event.name} is gone: {event.cause.replace('_', ' ')}"
    ),
    scheduling.PodVerdictChanged: _verdict,
    scheduling.PodReserved: _reserved,
    scheduling.NodeCharged: _charged,
    scheduling.PodAllocationFound: lambda event, _: (
        f"holds {allocation_text(event.allocation)}, by its {event.source}"
    ),
    scheduling.PodDevicesLost: lambda event, _: (
        f"its node no longer offers {', '.join(event.devices)}, which it holds"
        if event.devices
        else "its node offers all of its devices again"
    ),
    scheduling.BookingMade: lambda event, _: (
        f"room for {amounts_text(effective_request(event.pod))} is to be kept"
    ),
    scheduling.BookingEnded: lambda event, _: f"booking {event.cause}: its rest is free",
    scheduling.ReservationWithdrawn: _withdrawn,
    scheduling.NodeMarkedDirty: lambda event, _: (
        f"to be compared with its next report: {event.cause.replace('_', ' ')}"
    ),
    scheduling.NodeReconciled: lambda event, _: (
        f"agrees with report {event.report_version}, by {event.method}"
    ),
    scheduling.PodNominated: _nominated,
    scheduling.NodeClaimed: lambda event, _: "claimed for the nominated pod",
    scheduling.NodeSetAside: lambda event, _: (
        f"{event.node} is set aside for such pods: {event.cause}: {event.detail}"
    ),
    scheduling.NodeReadmitted: lambda event, _: (
        f"takes {'such' if event.shape else 'all'} pods again: {event.cause}"
    ),
    scheduling.PodReadmitted: lambda event, _: f"decided again: {event.cause}",
    scheduling.HoldBegun: lambda event, _: (
        f"overdue after {event.waited_s} s: {event.node} takes no other pod until it is placed, "
        f"{event.must_end} pod(s) there have to end at most"
    ),
    scheduling.HoldEnded: lambda event, _: (
        f"{event.node} is no longer held: {_HOLD_ENDS[event.cause]}"
    ),
    scheduling.GangRolledBack: lambda event, _: (
        f"{event.preemptor} is rolled back: for {event.waited_s} s only {len(event.uids)} of its "
        f"minimum of {event.minimum} pods were bound"
    ),
    scheduling.DemandWeighed: _demand,
    scheduling.NominationWithdrawn: lambda event, _: (
        f"nomination withdrawn: {event.cause.replace('_', ' ')}"
    ),
    binding.BindIntended: lambda event, _: "binding intended",
    binding.PodBound: _bound,
    binding.BindRefused: lambda event, _: (
        f"binding refused, {event.cause.replace('_', ' ')}: {event.message}"
    ),
    binding.BindUncertain: lambda event, _: (
        f"no clear answer to the binding, it is sent again: {event.message}"
    ),
    binding.EvictIntended: _for("to be evicted"),
    binding.PodEvicted: _for("evicted"),
    binding.EvictRefused: lambda event, _: f"eviction refused: {event.message}",
}
