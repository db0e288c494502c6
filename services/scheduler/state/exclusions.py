"""Which nodes are set aside for which shapes of pods, and which pods wait because the API server
will not bind them anywhere.

Folded from the log beside the ledger. The evidence counts from its own fact on; the fact that sets
aside follows it (`reserving.exclusion_proposals`). A rejection ends with the next report of other
amounts, and after a second one in a row only with a report of another node: other policy, scope,
options, managers, sizes, boot (kubernetes#84869: replacements that follow each other to one node).
What a policy denied, or others contest, no report tells, and one that says the same is no fact:
whatever was set aside is tried again later, each time later than before. Must not know a clock or
the log."""

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

REJECTIONS = frozenset(("TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError"))
"""Reasons by which a kubelet disproves what is believed of its zones (kubelet 1.36)."""
SHAPES_LIMIT = 64
"""Shapes remembered for one node; the oldest gives way."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Exclusion(msgspec.Struct):
    """One node for one shape. `node_is` and `amounts` are fingerprints of what its report said when
    it was set aside.
    """

    cause: AsideCause
    detail: str
    since: int
    strikes: int = 1
    node_is: str = ""
    amounts: str = ""


class Before(NamedTuple):
    """The pod and its node as they were before the fact."""

    pod: Pod
    node: str


class Exclusions(msgspec.Struct):
    """The fold. `due` holds evidence whose own fact is not folded yet, by node and shape; `strikes`
    outlives what ended.
    """

    nodes: dict[str, dict[str, Exclusion]] = {}
    strikes: dict[str, dict[str, int]] = {}
    barred: dict[str, str] = {}
    due: dict[str, dict[str, NodeSetAside]] = {}

    def of(self, pod: Pod) -> dict[str, Exclusion]:
        """Node name -> why it takes no pod like this."""
        if not self.nodes:
            return {}
        names = shape_of(pod), namespaced(pod)
        return {
            node: held[name] for node, held in self.nodes.items() for name in names if name in held
        }

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
                _said(event),
                ledger,
                event.uid,
            )
        return ()

    def _told(
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
        """Without a Node object there is none: nobody is sent there, what comes back under the name
        is another machine, and the version of its stream may be forgotten."""
        known = ledger.nodes.get(node)
        if known is None or known.observed is None:
            return
        strikes = self.strikes.get(node, {}).get(shape, 0) + 1
        event = NodeSetAside(node, shape, cause, detail, uid, position, strikes)
        self._set(position, event, ledger)
        self.due.setdefault(node, {})[shape] = event

    def _set(self, position: int, event: NodeSetAside, ledger: Ledger) -> None:
        """By evidence or by its fact; the fact that follows its evidence leaves what stands as it
        is, or what ended meanwhile.
        """
        if event.evidence and self.strikes.get(event.node, {}).get(event.shape, 0) >= event.strikes:
            return
        known = ledger.nodes.get(event.node)
        node_is, amounts = fingerprints(known.report if known is not None else None)
        shapes, strikes = (
            self.nodes.setdefault(event.node, {}),
            self.strikes.setdefault(event.node, {}),
        )
        shapes[event.shape] = Exclusion(
            event.cause, event.detail, position, event.strikes, node_is, amounts
        )
        strikes[event.shape] = event.strikes
        for held in (shapes, strikes):
            if len(held) > SHAPES_LIMIT:
                del held[next(iter(held))]

    def _reported(self, node: str, ledger: Ledger) -> tuple[str, ...]:
        held = self.nodes.get(node)
        if not held:
            return ()
        known = ledger.nodes.get(node)
        node_is, amounts = fingerprints(known.report if known is not None else None)
        ended = [name for name, aside in held.items() if _mended(aside, node_is, amounts)]
        for name in ended:
            self._clear(node, name, forgive=held[name].node_is != node_is)
        return (node,) if ended else ()

    def _clear(self, node: str, shape: str, forgive: bool) -> tuple[str, ...]:
        """Open the node to the shape, "" to all; `forgive` forgets its strikes too."""
        found = _drop(self.nodes, node, shape)
        _drop(self.due, node, shape)
        if forgive:
            _drop(self.strikes, node, shape)
        return (node,) if found else ()


Hear = Callable[[Exclusions, int, Any, Ledger, Before | None], tuple[str, ...]]
HEARD: dict[type[Event], Hear] = {
    cluster.PodObserved: Exclusions._seen,
    cluster.PodRunning: Exclusions._ran,
    cluster.PodEnded: Exclusions._ended,
    binding.BindRefused: Exclusions._refused,
    scheduling.NodeSetAside: Exclusions._told,
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
"""How a fact is heard, with its position, once the ledger has folded it; what comes back are nodes that are open again."""

PodBefore = Callable[[Exclusions, Any], str]
BEFORE: dict[type[Event], PodBefore] = {
    cluster.PodObserved: lambda exclusions, event: event.pod.uid if exclusions.barred else "",
    cluster.PodRunning: lambda exclusions, event: event.uid if exclusions.strikes else "",
    cluster.PodEnded: lambda _asides, event: event.uid if event.cause == "rejected" else "",
    binding.BindRefused: lambda _asides, event: event.uid,
}
"""The uid of the pod of which a hearer must be told how it was before the fact; "" for none."""


def _drop(table: dict[str, dict[str, Any]], node: str, shape: str) -> bool:
    held = table.get(node, {})
    names = [name for name in held if shape in ("", name)]
    for name in names:
        del held[name]
    if not held:
        table.pop(node, None)
    return bool(names)


def _mended(aside: Exclusion, node_is: str, amounts: str) -> bool:
    if aside.cause != "rejected":
        return False
    return aside.node_is != node_is or (aside.strikes == 1 and aside.amounts != amounts)


def fingerprints(report: Report | None) -> tuple[str, str]:
    """(what the node is, what it has free), as a report says it."""
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
    """Equal for pods that a kubelet judges alike, in every namespace."""
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
    """The shape within its namespace, for admission policies."""
    return f"{shape_of(pod)}@{pod.namespace}"


def _said(event: cluster.PodEnded) -> str:
    return f"{event.reason}: {event.message}" if event.message else event.reason
