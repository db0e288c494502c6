"""Every fact as one sentence for people, with the pod and the node that it is about. Pure.

The words of `topolog replay log`, `topolog top` and the story of a pod. Pods are named by
`namespace/name`, never by uid; zones are told wherever a pod is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from shared.domain.effective import effective_request
from shared.domain.quantity import format_amount
from shared.domain.report import Placement
from shared.domain.resources import Amounts
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import cluster_object_events as surroundings
from shared.events import log_events as log
from shared.events import report_events as report
from shared.events import scheduling_events as scheduling
from shared.events.catalog import Fact

PODS_NAMED = 3
WANTS_TOLD = 3
Names = Mapping[str, str]


class Told(msgspec.Struct, frozen=True):
    """A fact for people: pod (`namespace/name`, "" for none), node ("" for none), and one sentence."""

    pod: str
    node: str
    text: str


def told(fact: Fact, names: Names) -> Told:
    """The sentence of a fact; `names` is the key of a pod by uid."""
    about = fact.about
    return Told(names.get(about.pod, about.pod), about.node, _SENTENCES[type(fact)](fact, names))


def mentioned(fact: Fact) -> Iterable[str]:
    """The uids of all pods that the sentence names."""
    yield from (fact.about.pod, getattr(fact, "preemptor", ""), *getattr(fact, "victims", ()))


def amounts_text(amounts: Amounts) -> str:
    """`cpu 4, memory 2Gi`."""
    return ", ".join(
        f"{name} {format_amount(name, amount)}"
        for name, amount in sorted(amounts.items())
        if amount
    )


def zones_list(zones: Iterable[int]) -> str:
    """`zone 1`, `zones 0 and 1`, `zones 0, 1 and 2`."""
    ids = [str(zone) for zone in sorted(zones)]
    if not ids:
        return "no zone"
    return f"zone {ids[0]}" if len(ids) == 1 else f"zones {', '.join(ids[:-1])} and {ids[-1]}"


def by_container(zones: Mapping[str, tuple[int, ...]]) -> str:
    """`zone 1` when all containers agree, else `train on zone 1, feed on zone 0`."""
    if len(set(zones.values())) == 1:
        return zones_list(next(iter(zones.values())))
    return ", ".join(
        f"{name or 'the pod'} on {zones_list(ids)}" for name, ids in sorted(zones.items())
    )


def some(keys: Iterable[str]) -> str:
    """Some names, and how many more."""
    listed = sorted(keys)
    more = len(listed) - PODS_NAMED
    return ", ".join(listed[:PODS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _observed(fact: cluster.PodObserved, _names: Names) -> str:
    asks = amounts_text(effective_request(fact.pod)) or "nothing"
    if fact.problem:
        return f"cannot be scheduled: {fact.problem}"
    if fact.terminating:
        return "is being deleted"
    if fact.node:
        whose = "a static pod" if fact.static else f"schedulerName {fact.pod.scheduler_name}"
        return f"seen on {fact.node} ({whose}); asks for {asks}"
    gates = (
        f"; held back by {', '.join(fact.pod.constraints.gates)}"
        if fact.pod.constraints.gates
        else ""
    )
    return f"queued: {fact.pod.qos}, asks for {asks}{gates}"


_ENDS = {"absent_from_list": "gone, its end was seen by nobody", "node_ended": "gone with its node"}


def _ended(fact: cluster.PodEnded, _names: Names) -> str:
    if fact.cause == "rejected":
        return f"refused by the kubelet of {fact.node}: {fact.reason}: {fact.message}"
    return f"ended: {_ENDS.get(fact.cause, fact.cause)}" + (
        f" ({fact.reason})" if fact.reason else ""
    )


def _node(fact: cluster.NodeObserved, _names: Names) -> str:
    flags = [] if fact.ready else ["not ready"]
    flags += ["cordoned"] if fact.unschedulable else []
    flags += [f"taint {taint.key}:{taint.effect}" for taint in fact.taints]
    offers = amounts_text({name: fact.allocatable.get(name, 0) for name in ("cpu", "memory")})
    return "; ".join([f"node seen, offers {offers or 'nothing'}", *flags])


def _reported(fact: report.NodeReported, _names: Names) -> str:
    it = fact.report
    pods = {
        f"{placement.namespace}/{placement.pod}"
        for placement in it.placements or ()
        if placement.held
    }
    free: Amounts = {}
    for zone in it.zones:
        for name, held in zone.resources.items():
            free[name] = free.get(name, 0) + held.available
    listed = (
        f", {len(pods)} pod(s) on zones" if it.placements is not None else ", without placements"
    )
    return f"reports {len(it.zones)} zone(s), policy {it.policy} by {it.scope}{listed}; free: {amounts_text(free) or 'nothing'}"


def placed(listed: Iterable[Placement]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Pod key -> container -> zones, of containers that hold something."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for one in listed:
        if one.held:
            zones = tuple(sorted({zone for item in one.held for zone in item.zones}))
            found.setdefault(f"{one.namespace}/{one.pod}", {})[one.container] = zones
    return found


def _changed(fact: report.NodeReportChanged, _names: Names) -> str:
    holds = [
        f"{key} on {by_container(zones)}" for key, zones in sorted(placed(fact.listed).items())
    ]
    parts = [f"now holds {some(holds)}"] if holds else []
    parts += [f"no longer {some(fact.unlisted)}"] if fact.unlisted else []
    if not parts and fact.available:
        parts = [
            f"free on zone {zone}: {amounts_text(amounts) or 'nothing'}"
            for zone, amounts in sorted(fact.available.items())
        ]
    return "reports: " + ("; ".join(parts) or "the same again")


def _volume(fact: surroundings.VolumeObserved, _names: Names) -> str:
    return f"volume {fact.name} is bound" + (
        ", and not reached from every node" if fact.terms or fact.zones else ""
    )


def _volumes_limited(fact: surroundings.NodeVolumesLimited, _names: Names) -> str:
    limits = ", ".join(f"{number} of {driver}" for driver, number in sorted(fact.limits.items()))
    return f"takes volumes: {limits or 'no driver names a limit'}"


def _verdict(fact: scheduling.PodVerdictChanged, _names: Names) -> str:
    return f"waits: {fact.message}"


def _reserved(fact: scheduling.PodReserved, _names: Names) -> str:
    predicted = f", predicted on {by_container(fact.predicted)}" if fact.predicted else ""
    return f"reserved{predicted}; best of {fact.candidates} node(s), score {fact.score}"


def _charged(fact: scheduling.NodeCharged, _names: Names) -> str:
    if not fact.zones:
        return "charged, needs no zone"
    amounts = {amounts_text(held) for held in fact.zones.values()}
    each = " each" if len(fact.zones) > 1 else ""
    return f"charged in {zones_list(fact.zones)}: {' or '.join(sorted(amounts))}{each}"


def _demand(fact: scheduling.DemandWeighed, _names: Names) -> str:
    wants = (
        f"{amounts_text(each.amounts)} ({each.running} run, {each.waiting} wait, room for {each.room})"
        for each in fact.wanted
    )
    return (
        f"in demand, the scarcest room first: {'; '.join(islice(wants, WANTS_TOLD)) or 'nothing'}"
    )


def _withdrawn(fact: scheduling.ReservationWithdrawn, _names: Names) -> str:
    return f"reservation withdrawn: {fact.cause.replace('_', ' ')}"


def _nominated(fact: scheduling.PodNominated, names: Names) -> str:
    victims = some(names.get(uid, uid) for uid in fact.victims)
    return f"nominated; to make room, {len(fact.victims)} pod(s) are to be evicted: {victims}"


def _bound(fact: binding.PodBound, _names: Names) -> str:
    return (
        "bound"
        + (", as found" if fact.found else "")
        + (f" at call {fact.attempts}" if fact.attempts > 1 else "")
    )


def _for(verb: str) -> Callable[[Any, Names], str]:
    return lambda fact, names: f"{verb} for {names.get(fact.preemptor, fact.preemptor)}"


def _opened(fact: log.LogOpened, _: Names) -> str:
    why = (
        f": of the one before, what a reader had up to position {fact.lost} was lost"
        if fact.lost
        else ""
    )
    return f"the log begins, timeline {fact.timeline}{why}"


_SENTENCES: dict[type[Fact], Callable[[Any, Names], str]] = {
    log.LogOpened: _opened,
    log.FactsRedacted: lambda fact, _: (
        f"personal text was masked in {len(fact.rows)} facts: {fact.reason}"
    ),
    log.FactSkipped: lambda fact, _: (
        f"fact {fact.position} counts as never told" + (f": {fact.reason}" if fact.reason else "")
    ),
    report.NodeReported: _reported,
    report.NodeReportChanged: _changed,
    report.NodeReportExpired: lambda fact, _: (
        f"silent for {fact.silent_s} s: takes no pod that needs a zone until it reports"
    ),
    report.NodeReleased: lambda fact, _: (
        "released: its next report is believed" + (f" ({fact.reason})" if fact.reason else "")
    ),
    report.NodeReportRefused: lambda fact, _: f"a report was refused: {fact.reason}",
    cluster.NodeObserved: _node,
    cluster.NodeEnded: lambda fact, _: "the node object is gone",
    cluster.PodObserved: _observed,
    cluster.PodRunning: lambda fact, _: "admitted and running",
    cluster.PodEnded: _ended,
    cluster.ClusterListed: lambda fact, _: (
        f"all {fact.kind} of the cluster were told, first on timeline {fact.timeline}"
    ),
    surroundings.VolumeObserved: _volume,
    surroundings.ClaimObserved: lambda fact, _: (
        f"claim {fact.name} is bound to volume {fact.volume}"
    ),
    surroundings.NamespaceObserved: lambda fact, _: (
        f"namespace {fact.name} has {len(fact.labels)} label(s)"
    ),
    surroundings.NodeVolumesLimited: _volumes_limited,
    surroundings.NominationObserved: lambda fact, _: (
        f"room is kept for {fact.key}, for which another scheduler chose the node"
    ),
    surroundings.DeviceClassObserved: lambda fact, _: (
        f"DeviceClass {fact.name}: its driver gives {fact.resource}"
    ),
    surroundings.SurroundingEnded: lambda fact, _: (
        f"{fact.kind} {fact.name} is gone: {fact.cause.replace('_', ' ')}"
    ),
    scheduling.PodVerdictChanged: _verdict,
    scheduling.PodReserved: _reserved,
    scheduling.NodeCharged: _charged,
    scheduling.ReservationWithdrawn: _withdrawn,
    scheduling.NodeMarkedDirty: lambda fact, _: (
        f"to be compared with its next report: {fact.cause.replace('_', ' ')}"
    ),
    scheduling.NodeReconciled: lambda fact, _: (
        f"agrees with report {fact.report_version}, by {fact.method}"
    ),
    scheduling.PodNominated: _nominated,
    scheduling.NodeClaimed: lambda fact, _: "claimed for the nominated pod",
    scheduling.NodeSetAside: lambda fact, _: (
        f"{fact.node} is set aside for such pods: {fact.cause}: {fact.detail}"
    ),
    scheduling.NodeReadmitted: lambda fact, _: (
        f"takes {'such' if fact.shape else 'all'} pods again: {fact.cause}"
    ),
    scheduling.PodReadmitted: lambda fact, _: f"decided again: {fact.cause}",
    scheduling.DemandWeighed: _demand,
    scheduling.NominationWithdrawn: lambda fact, _: (
        f"nomination withdrawn: {fact.cause.replace('_', ' ')}"
    ),
    binding.BindIntended: lambda fact, _: "binding intended",
    binding.PodBound: _bound,
    binding.BindRefused: lambda fact, _: (
        f"binding refused, {fact.cause.replace('_', ' ')}: {fact.message}"
    ),
    binding.BindUncertain: lambda fact, _: (
        f"no clear answer to the binding, it is sent again: {fact.message}"
    ),
    binding.EvictIntended: _for("to be evicted"),
    binding.PodEvicted: _for("evicted"),
    binding.EvictRefused: lambda fact, _: f"eviction refused: {fact.message}",
}
