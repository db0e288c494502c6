"""The fold: one event after another into the ledger.

Deterministic: no clock, no randomness, no order of sets. `evolve` changes the ledger in place and
returns the nodes whose bounds or predicates changed. Events about pods that the ledger no longer
has are harmless, because an end may be appended twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import log_events as log
from shared.events import report_events as report
from shared.events import scheduling_events as scheduling
from shared.events import surroundings_events as surroundings
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.ledger import pods, reports
from shared.ledger.alike import share_amounts
from shared.ledger.fingerprints import reconciled
from shared.ledger.nodes import forget_if_empty, node_of
from shared.ledger.recompute import recompute
from shared.ledger.state import Ledger, LedgerNode

Touched = tuple[str, ...]


class GapError(Exception):
    """The event is not at the next position, so the reader must read the log again."""


def evolve(ledger: Ledger, envelope: Envelope, event: Event) -> Touched:
    """Fold one event. Raises GapError if `envelope.position` is not the next one."""
    position = envelope.position
    if position != ledger.position + 1:
        raise GapError(f"expected position {ledger.position + 1}, got {position}")
    ledger.position = position
    handler = _HANDLERS.get(type(event))
    if handler is None:
        return ()
    touched = handler(ledger, event, envelope)
    for name in touched:
        node = ledger.nodes.get(name)
        if node is not None and node.observed is None:
            forget_if_empty(ledger, node)
    return touched


def concerns(kind: type[Event]) -> bool:
    """Return True if events of this type change more of the ledger than its position. Raises
    KeyError for a type that is in neither table."""
    if kind in _HANDLERS:
        return True
    _WHY_NOT[kind]
    return False


def pass_over(ledger: Ledger, envelope: Envelope) -> None:
    """Skip an event that is not folded: only the position moves."""
    ledger.position = envelope.position


def _reported(ledger: Ledger, event: report.NodeReported, envelope: Envelope) -> Touched:
    return (reports.reported(ledger, event, envelope.version, envelope.position),)


def _report_changed(ledger: Ledger, event: report.NodeReportChanged, envelope: Envelope) -> Touched:
    return (reports.changed(ledger, event, envelope.version, envelope.position),)


def _report_expired(ledger: Ledger, event: report.NodeReportExpired, envelope: Envelope) -> Touched:
    node_of(ledger, event.node).expired = True
    return (event.node,)


def _report_refused(ledger: Ledger, event: report.NodeReportRefused, envelope: Envelope) -> Touched:
    """Note a refused report. Refusals lock a node out only if no other report arrives."""
    node = ledger.nodes.get(event.node)
    if node is not None and node.expired:
        node.locked = event.reason
    return ()


def _released(ledger: Ledger, event: report.NodeReleased, envelope: Envelope) -> Touched:
    node = ledger.nodes.get(event.node)
    if node is not None:
        node.locked, node.released = "", True
    return ()


def _node_observed(ledger: Ledger, event: cluster.NodeObserved, envelope: Envelope) -> Touched:
    node = node_of(ledger, event.name)
    if node.observed is None or node.observed.uid != event.uid:
        node.observed_at = envelope.position
    share_amounts(event)
    node.observed, node.is_deleted = event, False
    if node.basis is not None and node.basis.unlisted:
        recompute(node, ())  # what the kubelet reserves follows from the Node object
    return (event.name,)


def _node_ended(ledger: Ledger, event: cluster.NodeEnded, envelope: Envelope) -> Touched:
    node = ledger.nodes.get(event.name)
    if node is None or node.observed is None or node.observed.uid != event.uid:
        return ()
    node.observed, node.is_deleted = None, True
    if event.cause == "moved":
        # Another cell goes on with the node; what this log knows of it gets old.
        node.expired = True
        if not node.charges:
            ledger.nodes[event.name] = LedgerNode(event.name, devices=node.devices)
    return (event.name,)


def _dirty(ledger: Ledger, event: scheduling.NodeMarkedDirty, envelope: Envelope) -> Touched:
    node = ledger.nodes.get(event.node)
    if node is not None:
        node.dirty = event.cause
    return (event.node,)


def _reconciled(ledger: Ledger, event: scheduling.NodeReconciled, envelope: Envelope) -> Touched:
    node = ledger.nodes.get(event.node)
    if node is not None:
        reconciled(ledger, node, event)
    return (event.node,)


def _devices_observed(
    ledger: Ledger, event: surroundings.NodeDevicesObserved, envelope: Envelope
) -> Touched:
    node_of(ledger, event.node).devices = event
    return (event.node,)


def _surrounding_ended(
    ledger: Ledger, event: surroundings.SurroundingEnded, envelope: Envelope
) -> Touched:
    """End a Device object; the scheduler's own fold ends the others."""
    node = ledger.nodes.get(event.name) if event.kind == "devices" else None
    if node is None:
        return ()
    node.devices = None
    return (event.name,)


def _opened(ledger: Ledger, event: log.LogOpened, envelope: Envelope) -> Touched:
    ledger.log_id, ledger.timeline = event.log_id, event.timeline
    return ()


_HANDLERS: dict[type[Event], Callable[[Ledger, Any, Envelope], Touched]] = {
    report.NodeReported: _reported,
    report.NodeReportChanged: _report_changed,
    report.NodeReportExpired: _report_expired,
    report.NodeReportRefused: _report_refused,
    report.NodeReleased: _released,
    cluster.NodeObserved: _node_observed,
    cluster.NodeEnded: _node_ended,
    cluster.PodObserved: pods.observed,
    cluster.PodRunning: pods.running,
    cluster.PodEnded: pods.ended,
    scheduling.PodVerdictChanged: pods.verdict_changed,
    scheduling.PodReserved: pods.reserved,
    scheduling.NodeCharged: pods.charged,
    scheduling.BookingMade: pods.booking_made,
    scheduling.BookingEnded: pods.booking_ended,
    scheduling.PodAllocationFound: pods.allocation_found,
    scheduling.PodDevicesLost: pods.devices_lost,
    scheduling.ReservationWithdrawn: pods.withdrawn,
    scheduling.NodeMarkedDirty: _dirty,
    scheduling.NodeReconciled: _reconciled,
    scheduling.PodNominated: pods.nominated,
    scheduling.NominationWithdrawn: pods.nomination_withdrawn,
    binding.BindIntended: pods.intended,
    binding.PodBound: pods.bound,
    binding.BindRefused: pods.refused,
    surroundings.NodeDevicesObserved: _devices_observed,
    surroundings.SurroundingEnded: _surrounding_ended,
    log.LogOpened: _opened,
}

# Events that the ledger ignores, each with the reason.
_WHY_NOT: dict[type[Event], str] = {
    log.FactsRedacted: "masks texts of pods that ended, under one name in all events",
    log.FactSkipped: "applied before the fold, which starts again without the event",
    cluster.ClusterListed: "lets schedulers decide and holds nothing: the scheduler's own fold",
    scheduling.NodeClaimed: (
        "only raises the version of the node's stream; PodNominated has the claim"
    ),
    scheduling.NodeSetAside: "excludes the node for a pod class: the scheduler's own fold",
    scheduling.NodeReadmitted: "ends an exclusion: the scheduler's own fold",
    scheduling.PodReadmitted: "the pod is decided again, and is charged nowhere until then",
    scheduling.HoldBegun: "keeps other pods from the node: the scheduler's own fold",
    scheduling.HoldEnded: "ends a hold: the scheduler's own fold",
    scheduling.GangRolledBack: "its pods are charged until they end",
    scheduling.DemandWeighed: "ranks nodes: the scheduler's own fold",
    surroundings.VolumeObserved: "bars nodes for pods: the scheduler's own fold",
    surroundings.ClaimObserved: "bars nodes for pods: the scheduler's own fold",
    surroundings.NamespaceObserved: "bars nodes for pods: the scheduler's own fold",
    surroundings.NodeVolumesLimited: "volumes are in no zone",
    surroundings.NominationObserved: "other schedulers name no zones: the scheduler's own fold",
    surroundings.DeviceClassObserved: "leaves a resource to a DRA driver: the scheduler's own fold",
    surroundings.PodGroupObserved: "says how many pods are placed together: the scheduler's fold",
    binding.BindUncertain: "after an intent the pod stays charged until a definite answer",
    binding.EvictIntended: "the victim is charged until it ends",
    binding.PodEvicted: "the victim is charged until it ends",
    binding.EvictRefused: "the victim stays on its node",
}
