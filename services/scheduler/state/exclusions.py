"""Excluded nodes: nodes that get no pods of a pod class for now, and pods that wait because the API
server refuses to bind them anywhere.

Folded from the log next to the ledger. Evidence counts from its own event on; the event of the
exclusion follows it (`reserve/exclusions`).

1. An exclusion after a rejection ends with the next report of other amounts. After a second
   rejection in a row it ends only with a report that shows another node: other policy, scope,
   options, managers, sizes or boot (kubernetes#84869: replacements of a rejected pod go to the same
   node again).
2. No report shows what an admission policy denied or what other schedulers contest, and an
   unchanged report makes no event. So every exclusion is retried later, each time after a longer
   pause.

This module does not know a clock or the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import xxhash

from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import report_events as reports
from shared.events import scheduling_events as scheduling
from shared.events.catalog import Event
from shared.events.scheduling_events import AsideCause, NodeSetAside
from shared.ledger.state import Ledger

# Reasons by which a kubelet disproves what is believed of its zones (kubelet 1.36).
REJECTIONS = frozenset(("TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError"))
# Pod classes remembered for one node; the oldest is dropped.
SHAPES_LIMIT = 64

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Exclusion(msgspec.Struct):
    """One node for one pod class. `node_is` and `amounts` are fingerprints of its report at that
    moment.
    """

    cause: AsideCause
    detail: str
    since: int
    strikes: int = 1
    node_is: str = ""
    amounts: str = ""


class PodBefore(NamedTuple):
    """The pod and its node before the event."""

    pod: Pod
    node: str


class Exclusions(msgspec.Struct):
    """The fold. `due` are exclusions without an event yet, by node and pod class; `strikes` outlive
    their exclusion. `barred` are pods that may not be bound, with the reason.
    """

    nodes: dict[str, dict[str, Exclusion]] = {}
    strikes: dict[str, dict[str, int]] = {}
    barred: dict[str, str] = {}
    due: dict[str, dict[str, NodeSetAside]] = {}

    def of(self, pod: Pod) -> dict[str, Exclusion]:
        """Return the exclusions of such pods by node name."""
        if not self.nodes:
            return {}
        names, excluded = (shape_of(pod), namespaced(pod)), {}
        for node, shapes in self.nodes.items():
            for name in names:
                if name in shapes:
                    excluded[node] = shapes[name]
        return excluded

    def evolve(
        self, position: int, event: Event, ledger: Ledger, pod_before: PodBefore | None
    ) -> tuple[str, ...]:
        """Fold an event of a type in `FOLDED`, after the ledger. Return nodes that are open
        again.
        """
        match event:
            case cluster.PodObserved():
                if pod_before is not None and pod_before.pod != event.pod:
                    self.barred.pop(event.pod.uid, None)
            case cluster.PodRunning():
                if pod_before is not None and event.node in self.strikes:
                    for shape in (shape_of(pod_before.pod), namespaced(pod_before.pod)):
                        _drop(self.strikes, event.node, shape)
            case cluster.PodEnded():
                self._ended(position, event, ledger, pod_before)
            case binding.BindRefused():
                self._refused(position, event, ledger, pod_before)
            case scheduling.NodeSetAside():
                self._set(position, event, ledger)
                self.due.get(event.node, {}).pop(event.shape, None)
            case scheduling.PodReadmitted():
                self.barred.pop(event.uid, None)
            case scheduling.NodeReadmitted():
                return self._clear(event.node, event.shape, forgive=event.cause == "operator")
            case cluster.NodeEnded():
                return self._clear(event.name, "", forgive=True)
            case reports.NodeReported():
                return self._reported(event.report.node, ledger)
            case reports.NodeReportChanged():
                return self._reported(event.node, ledger)
            case _:
                pass
        return ()

    def _ended(
        self, position: int, event: cluster.PodEnded, ledger: Ledger, before: PodBefore | None
    ) -> None:
        self.barred.pop(event.uid, None)
        if event.cause == "rejected" and event.reason in REJECTIONS and before is not None:
            node, shape = event.node or before.node, shape_of(before.pod)
            detail = f"{event.reason}: {event.message}" if event.message else event.reason
            exclusion = NodeSetAside(node, shape, "rejected", detail, event.uid, position)
            self._add_evidence(exclusion, ledger)

    def _refused(
        self, position: int, event: binding.BindRefused, ledger: Ledger, before: PodBefore | None
    ) -> None:
        if event.cause in ("forbidden", "invalid"):
            self.barred[event.uid] = f"binding {event.cause}: {event.message}"
        elif event.cause == "denied" and before is not None:
            node, shape, message = event.node, namespaced(before.pod), event.message
            exclusion = NodeSetAside(node, shape, "denied", message, event.uid, position)
            self._add_evidence(exclusion, ledger)

    def _add_evidence(self, exclusion: NodeSetAside, ledger: Ledger) -> None:
        """Exclude the node at once; `due` has the event until the log has it."""
        node, shape = exclusion.node, exclusion.shape
        # A name without a Node object gets no pod, and a node that comes back under it is another
        # machine, whose stream's version may be forgotten.
        ledger_node = ledger.nodes.get(node)
        if ledger_node is None or ledger_node.observed is None:
            return
        strikes = self.strikes.get(node, {}).get(shape, 0) + 1
        event = msgspec.structs.replace(exclusion, strikes=strikes)
        self._set(event.evidence, event, ledger)
        self.due.setdefault(node, {})[shape] = event

    def _set(self, position: int, event: NodeSetAside, ledger: Ledger) -> None:
        # The event that follows its evidence changes nothing, also if the exclusion has ended.
        if event.evidence and self.strikes.get(event.node, {}).get(event.shape, 0) >= event.strikes:
            return
        node = ledger.nodes.get(event.node)
        node_is, amounts = fingerprints(node.report if node is not None else None)
        shapes = self.nodes.setdefault(event.node, {})
        strikes = self.strikes.setdefault(event.node, {})
        shapes[event.shape] = Exclusion(
            event.cause, event.detail, position, event.strikes, node_is, amounts
        )
        strikes[event.shape] = event.strikes
        for table in (shapes, strikes):
            if len(table) > SHAPES_LIMIT:
                del table[next(iter(table))]

    def _reported(self, node: str, ledger: Ledger) -> tuple[str, ...]:
        shapes = self.nodes.get(node)
        if not shapes:
            return ()
        ledger_node = ledger.nodes.get(node)
        node_is, amounts = fingerprints(ledger_node.report if ledger_node is not None else None)
        ended = [
            name for name, exclusion in shapes.items() if _is_over(exclusion, node_is, amounts)
        ]
        for name in ended:
            self._clear(node, name, forgive=shapes[name].node_is != node_is)
        return (node,) if ended else ()

    def _clear(self, node: str, shape: str, forgive: bool) -> tuple[str, ...]:
        """Open the node to the pod class, "" for all; `forgive` also forgets its strikes."""
        was_excluded = _drop(self.nodes, node, shape)
        _drop(self.due, node, shape)
        if forgive:
            _drop(self.strikes, node, shape)
        return (node,) if was_excluded else ()


# The types of events that `Exclusions.evolve` folds.
FOLDED: frozenset[type[Event]] = frozenset(
    (
        cluster.PodObserved,
        cluster.PodRunning,
        cluster.PodEnded,
        cluster.NodeEnded,
        binding.BindRefused,
        scheduling.NodeSetAside,
        scheduling.PodReadmitted,
        scheduling.NodeReadmitted,
        reports.NodeReported,
        reports.NodeReportChanged,
    )
)

UidOf = Callable[[Exclusions, Any], str]
# The uid of the pod whose state before the event is needed; "" for none.
POD_BEFORE: dict[type[Event], UidOf] = {
    cluster.PodObserved: lambda exclusions, event: event.pod.uid if exclusions.barred else "",
    cluster.PodRunning: lambda exclusions, event: event.uid if exclusions.strikes else "",
    cluster.PodEnded: lambda _exclusions, event: event.uid if event.cause == "rejected" else "",
    binding.BindRefused: lambda _exclusions, event: event.uid,
}


def _drop(table: dict[str, dict[str, Any]], node: str, shape: str) -> bool:
    shapes = table.get(node, {})
    names = [name for name in shapes if shape in ("", name)]
    for name in names:
        del shapes[name]
    if not shapes:
        table.pop(node, None)
    return bool(names)


def _is_over(exclusion: Exclusion, node_is: str, amounts: str) -> bool:
    if exclusion.cause != "rejected":
        return False
    changed = exclusion.amounts != amounts
    return exclusion.node_is != node_is or (exclusion.strikes == 1 and changed)


def fingerprints(report: Report | None) -> tuple[str, str]:
    """Return fingerprints of what the node is and of what it has free, by its report."""
    if report is None:
        return "", ""
    sizes = [
        (zone.id, sorted((name, r.capacity, r.allocatable) for name, r in zone.resources.items()))
        for zone in report.zones
    ]
    free = [
        (zone.id, sorted((name, r.available) for name, r in zone.resources.items()))
        for zone in report.zones
    ]
    node_is = (
        report.boot_id,
        report.policy,
        report.scope,
        report.options,
        report.tracked,
        report.max_numa_nodes,
        sizes,
    )
    return xxhash.xxh3_64_hexdigest(_encode(node_is)), xxhash.xxh3_64_hexdigest(_encode(free))


def shape_of(pod: Pod) -> str:
    """Return a key that is equal for pods that a kubelet admits alike, in every namespace."""
    asked = (
        [(c.kind, c.requests, c.limits) for c in pod.containers],
        pod.qos,
        pod.overhead,
        pod.pod_level,
    )
    try:
        encoded = _encode(asked)
    except OverflowError:
        encoded = repr(asked).encode()
    return xxhash.xxh3_64_hexdigest(encoded)


def namespaced(pod: Pod) -> str:
    """Return the key within the pod's namespace, for admission policies."""
    return f"{shape_of(pod)}@{pod.namespace}"
