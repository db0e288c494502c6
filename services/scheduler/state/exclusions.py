"""Excluded nodes: which nodes take no pod of which class, and which pods wait because the API
server refuses to bind them anywhere.

Folded from the log next to the ledger. Evidence counts from its own event on; the event of the
exclusion follows it (`reserve/exclusions`). An exclusion after a rejection ends with the next
report of other amounts; after a second rejection in a row only with a report of another node: other
policy, scope, options, managers, sizes or boot (kubernetes#84869: replacements follow each other to
one node). No report shows what an admission policy denied or other schedulers contest, and an
unchanged report makes no event; therefore every exclusion is tried again later, each time after a
longer pause. Must not know a clock or the log.
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


class Before(NamedTuple):
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

    def _ended(
        self, position: int, event: cluster.PodEnded, ledger: Ledger, before: Before | None
    ) -> tuple[str, ...]:
        self.barred.pop(event.uid, None)
        if event.cause == "rejected" and event.reason in REJECTIONS and before is not None:
            self._evidence(
                position,
                event.node or before.node,
                shape_of(before.pod),
                "rejected",
                _detail(event),
                ledger,
                event.uid,
            )
        return ()

    def _excluded(
        self, position: int, event: NodeSetAside, ledger: Ledger, _before: Before | None
    ) -> tuple[str, ...]:
        self._set(position, event, ledger)
        self.due.get(event.node, {}).pop(event.shape, None)
        return ()

    def _ran(
        self, _position: int, event: cluster.PodRunning, _ledger: Ledger, before: Before | None
    ) -> tuple[str, ...]:
        for name in (
            (shape_of(before.pod), namespaced(before.pod))
            if before is not None and event.node in self.strikes
            else ()
        ):
            _drop(self.strikes, event.node, name)
        return ()

    def _refused(
        self, position: int, event: binding.BindRefused, ledger: Ledger, before: Before | None
    ) -> tuple[str, ...]:
        if event.cause in ("forbidden", "invalid"):
            self.barred[event.uid] = f"binding {event.cause}: {event.message}"
        elif event.cause == "denied" and before is not None:
            self._evidence(
                position,
                event.node,
                namespaced(before.pod),
                "denied",
                event.message,
                ledger,
                event.uid,
            )
        return ()

    def _seen(
        self, _position: int, event: cluster.PodObserved, _ledger: Ledger, before: Before | None
    ) -> tuple[str, ...]:
        if before is not None and before.pod != event.pod:
            self.barred.pop(event.pod.uid, None)
        return ()

    def _readmitted(
        self,
        _position: int,
        event: scheduling.PodReadmitted,
        _ledger: Ledger,
        _before: Before | None,
    ) -> tuple[str, ...]:
        self.barred.pop(event.uid, None)
        return ()

    def _evidence(
        self,
        position: int,
        node: str,
        shape: str,
        cause: AsideCause,
        detail: str,
        ledger: Ledger,
        uid: str,
    ) -> None:
        # A name without a Node object gets no pod, and a node that comes back under it is another
        # machine, whose stream's version may be forgotten.
        ledger_node = ledger.nodes.get(node)
        if ledger_node is None or ledger_node.observed is None:
            return
        strikes = self.strikes.get(node, {}).get(shape, 0) + 1
        event = NodeSetAside(node, shape, cause, detail, uid, position, strikes)
        self._set(position, event, ledger)
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


Hear = Callable[[Exclusions, int, Any, Ledger, Before | None], tuple[str, ...]]
# Called with the event's position once the ledger has folded it; returns nodes that are open again.
HEARD: dict[type[Event], Hear] = {
    cluster.PodObserved: Exclusions._seen,
    cluster.PodRunning: Exclusions._ran,
    cluster.PodEnded: Exclusions._ended,
    binding.BindRefused: Exclusions._refused,
    scheduling.NodeSetAside: Exclusions._excluded,
    scheduling.PodReadmitted: Exclusions._readmitted,
    scheduling.NodeReadmitted: lambda exclusions, _at, event, *_: exclusions._clear(
        event.node, event.shape, event.cause == "operator"
    ),
    cluster.NodeEnded: lambda exclusions, _at, event, *_: exclusions._clear(
        event.name, "", forgive=True
    ),
    reports.NodeReported: lambda exclusions, _at, event, ledger, _: exclusions._reported(
        event.report.node, ledger
    ),
    reports.NodeReportChanged: lambda exclusions, _at, event, ledger, _: exclusions._reported(
        event.node, ledger
    ),
}

PodBefore = Callable[[Exclusions, Any], str]
# The uid of the pod whose state before the event is needed; "" for none.
BEFORE: dict[type[Event], PodBefore] = {
    cluster.PodObserved: lambda exclusions, event: event.pod.uid if exclusions.barred else "",
    cluster.PodRunning: lambda exclusions, event: event.uid if exclusions.strikes else "",
    cluster.PodEnded: lambda _asides, event: event.uid if event.cause == "rejected" else "",
    binding.BindRefused: lambda _asides, event: event.uid,
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


def _detail(event: cluster.PodEnded) -> str:
    return f"{event.reason}: {event.message}" if event.message else event.reason
