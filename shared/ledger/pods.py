"""Fold a pod's life: observed, reserved, intended, bound, running, ended.

Each handler returns the nodes it changed.
"""

from __future__ import annotations

from typing import Literal

from shared.domain.pod import Pod
from shared.domain.refusal import zone_wait
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events.envelope import Envelope
from shared.ledger.alike import NOTHING, share, shared_zones
from shared.ledger.charging import charge_pod, drawn, release_charge
from shared.ledger.confirmation import has_only_inits
from shared.ledger.container_zones import may_list
from shared.ledger.fingerprints import confirm_containers
from shared.ledger.nodes import node_of, stop_counting
from shared.ledger.recompute import narrow_charge, recompute, redemand
from shared.ledger.state import Booking, Charge, Ledger, LedgerNode, LedgerPod
from shared.ledger.view import restore, subtract

Touched = tuple[str, ...]


def observed(ledger: Ledger, event: cluster.PodObserved, envelope: Envelope) -> Touched:
    """Charge a pod to the node on which it is observed, whichever scheduler bound it."""
    share((event.pod,))
    entry = ledger.pods.get(event.pod.uid)
    if entry is None:
        entry = ledger.pods[event.pod.uid] = LedgerPod(event.pod, predicted=NOTHING)
    old_node = entry.node
    changed = entry.pod != event.pod
    entry.observed_at, entry.problem = envelope.position, event.problem
    entry.resource_version = event.resource_version
    entry.static, entry.terminating = event.static, event.terminating
    if changed:
        if entry.node and not _same_demand(entry.pod, event.pod):
            _respecified(ledger, entry, event)
        entry.pod = event.pod
    if not event.node:
        return (old_node,) if changed and old_node else ()
    touched = _is_on(ledger, entry, event.node, envelope)
    entry.stage = "running" if event.phase == "Running" else "bound"
    runs_at = envelope.position if event.phase == "Running" else 0
    node = ledger.nodes[event.node]
    _admit(node, event.pod.uid, runs_at, event.started_s)
    _observe(ledger, node, node.charges[event.pod.uid], event)
    return tuple(sorted({*touched, *_drop_claim(ledger, entry)})) if entry.nominated else touched


def _observe(ledger: Ledger, node: LedgerNode, charge: Charge, event: cluster.PodObserved) -> None:
    """Note where annotations say that the pod is. They may confirm the pods of the node."""
    if charge.observed != event.placement:
        charge.observed = event.placement
        if node.report is not None and may_list(node, node.report):
            confirm_containers(ledger, node)
            recompute(node)


def _is_on(ledger: Ledger, entry: LedgerPod, name: str, envelope: Envelope) -> Touched:
    """Charge the pod to this node and to no other."""
    old_node = entry.node
    if old_node == name:
        return (name,)
    if old_node:
        entry.allocation = None  # It was made for the other node.
    charge_pod(ledger, entry, name, envelope.position)
    return tuple(sorted((old_node, name))) if old_node else (name,)


def _same_demand(pod: Pod, other: Pod) -> bool:
    """Return whether a changed pod has the same demand. Labels change with each binding
    (PodTopologyLabels, Kubernetes 1.35), so most changes leave the charge as it is."""
    same_containers = pod.containers == other.containers and pod.qos == other.qos
    return same_containers and pod.overhead == other.overhead and pod.pod_level == other.pod_level


def _respecified(ledger: Ledger, entry: LedgerPod, event: cluster.PodObserved) -> None:
    """Give a charged pod that was resized in place its new demand. It stays the same pod for the
    kubelet's listings, and keeps the position of its reservation."""
    name, charged_at = entry.node, entry.charged_at
    node = ledger.nodes[name]
    old = node.charges[event.pod.uid]
    release_charge(ledger, entry, ledger.position)
    entry.pod = event.pod
    charge_pod(ledger, entry, name, charged_at)
    node.since_empty = None
    charge = node.charges[event.pod.uid]
    charge.alias, charge.sent_at, charge.started_s = old.alias, old.sent_at, old.started_s
    redemand(node, charge, entry)
    charge.runs_at = ledger.position if entry.stage == "running" else 0
    if charge.key in node.ended:
        ended_pods = node.ended[charge.key]
        ended_pods.lives, ended_pods.is_supposed = None, True
    recompute(node)


def running(ledger: Ledger, event: cluster.PodRunning, envelope: Envelope) -> Touched:
    """The kubelet admitted the pod."""
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    touched = _is_on(ledger, entry, event.node, envelope)
    entry.stage = "running"
    _admit(ledger.nodes[event.node], event.uid, envelope.position, event.started_s)
    return touched


def _admit(node: LedgerNode, uid: str, runs_at: int, started_s: int) -> None:
    """Note that a pod runs, so that the memory of its init containers is free. If only these have a
    demand, or no report lists the demand, this confirms the pod."""
    charge = node.charges[uid]
    if (charge.runs_at > 0) == (runs_at > 0):
        return
    charge.runs_at = runs_at
    if started_s:
        _started(charge, started_s)
    unlisted = node.basis is not None and bool(node.basis.unlisted)
    if charge.zones and (charge.confirmed or unlisted or has_only_inits(charge)):
        recompute(node, (charge.key,))


def _started(charge: Charge, started_s: int) -> None:
    """Note a start, but only of a pod that was sent after the last time that the kubelet may have
    admitted all pods again: a status shows the first start only."""
    if charge.sent_at and not charge.started_s:
        charge.started_s = started_s


def ended(ledger: Ledger, event: cluster.PodEnded, envelope: Envelope) -> Touched:
    """The pod holds nothing any more and leaves the ledger."""
    entry = ledger.pods.pop(event.uid, None)
    if entry is None:
        return _ended_for_certain(ledger, event)
    touched, node = _drop_claim(ledger, entry) if entry.nominated else (), entry.node
    if not node:
        return touched
    if event.started_s:
        _started(ledger.nodes[node].charges[event.uid], event.started_s)
    came, absent = event.cause != "rejected", event.cause == "absent_from_list"
    if not came:  # what it took before it was rejected may have changed groups of zones
        ledger.nodes[node].since_empty = None
    release_charge(ledger, entry, envelope.position, came, event.finished_s, absent)
    return (*touched, node)


def _ended_for_certain(ledger: Ledger, event: cluster.PodEnded) -> Touched:
    """Note that a pod that was only absent from a list has ended for certain: reports no longer
    keep its charge."""
    node = ledger.nodes.get(event.node)
    if node is None or event.cause == "absent_from_list":
        return ()
    for key, ended_pods in node.ended.items():
        if ended_pods.absent is not None and ended_pods.absent.uid == event.uid:
            stop_counting(node, key)
            recompute(node, ())
            return (event.node,)
    return ()


def verdict_changed(
    ledger: Ledger, event: scheduling.PodVerdictChanged, envelope: Envelope
) -> Touched:
    """Remember the last result, so that repeated ones are not appended."""
    entry = ledger.pods.get(event.uid)
    if entry is not None:
        entry.verdict, entry.zone_wait = event.message, zone_wait(event.detail)
    return ()


def reserved(ledger: Ledger, event: scheduling.PodReserved, envelope: Envelope) -> Touched:
    """A node was chosen. The charge follows as `NodeCharged` of the same commit."""
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    entry.stage, entry.reserved_at = "reserved", envelope.position
    entry.verdict, entry.certain = "", event.certain
    entry.predicted = shared_zones(event.predicted)
    entry.one_zone, entry.zone_wait, entry.allocation = event.one_zone, "", event.allocation
    booked = ledger.pods.get(event.drawn_from)
    # The booking may have ended since the decision, and another of its uid may wait.
    is_there = booked is not None and booked.node == event.node
    entry.drawn_from = event.drawn_from if is_there else ""
    if entry.booking is not None:
        entry.booking.allocation, entry.booking.since_us = event.allocation, envelope.time_us
    return _drop_claim(ledger, entry) if entry.nominated else ()


def charged(ledger: Ledger, event: scheduling.NodeCharged, envelope: Envelope) -> Touched:
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    touched = _is_on(ledger, entry, event.node, envelope)
    node = ledger.nodes[event.node]
    charge = node.charges[event.uid]
    if charge.charged_at == envelope.position:
        charge.sent_at = envelope.position
    if event.narrowed:
        narrow_charge(node, charge, event.narrowed)
    booked = ledger.pods.get(entry.drawn_from)
    if booked is not None and booked.booking is not None and booked.booking.terms.once:
        _end_booking(ledger, booked, "used", envelope)
    return touched


def booking_made(ledger: Ledger, event: scheduling.BookingMade, envelope: Envelope) -> Touched:
    """A booking waits for a node like a pod."""
    if event.uid not in ledger.pods:
        ledger.pods[event.uid] = LedgerPod(
            event.pod,
            observed_at=envelope.position,
            resource_version=event.resource_version,
            problem=event.problem,
            booking=Booking(event.terms, event.pod, since_us=envelope.time_us),
        )
    return ()


def booking_ended(ledger: Ledger, event: scheduling.BookingEnded, envelope: Envelope) -> Touched:
    """The rest of the booking is free."""
    entry = ledger.pods.get(event.uid)
    if entry is None or entry.booking is None:
        return ()
    return _end_booking(ledger, entry, event.cause, envelope)


def _end_booking(
    ledger: Ledger, entry: LedgerPod, cause: Literal["used", "expired", "deleted"], at: Envelope
) -> Touched:
    """Free the room. The entry stays as long as a Reservation object would bring it back."""
    booking, node = entry.booking, ledger.nodes.get(entry.node)
    if booking is not None and not booking.ended and cause != "deleted":
        uids = drawn(ledger, node, entry.pod.uid) if node is not None else ()
        booking.users = tuple([ledger.pods[uid].pod for uid in uids])
        booking.ended, booking.ended_on, booking.since_us = cause, entry.node, at.time_us
    touched = (entry.node,) if entry.node else _drop_claim(ledger, entry)
    _forget_owners(ledger, entry)
    release_charge(ledger, entry, ledger.position)
    entry.stage, entry.terminating = "pending", True
    if cause == "deleted" or not entry.resource_version:
        del ledger.pods[entry.pod.uid]
    return touched


def _forget_owners(ledger: Ledger, entry: LedgerPod) -> None:
    """From now on the pods that drew from the booking are like any others."""
    node = ledger.nodes.get(entry.node)
    for uid in drawn(ledger, node, entry.pod.uid) if node is not None else ():
        ledger.pods[uid].drawn_from = ""


def allocation_found(
    ledger: Ledger, event: scheduling.PodAllocationFound, envelope: Envelope
) -> Touched:
    """Record the allocation of a pod that was charged in every zone until now."""
    entry = ledger.pods.get(event.uid)
    if entry is None or entry.node != event.node:
        return ()
    entry.allocation = ledger.nodes[event.node].charges[event.uid].allocation = event.allocation
    return (event.node,)


def devices_lost(ledger: Ledger, event: scheduling.PodDevicesLost, envelope: Envelope) -> Touched:
    """Remember what was lost, so that it is appended once."""
    node = ledger.nodes.get(event.node)
    if node is not None and event.uid in node.charges:
        node.charges[event.uid].lost_devices = event.devices
    return ()


def withdrawn(
    ledger: Ledger, event: scheduling.ReservationWithdrawn, envelope: Envelope
) -> Touched:
    """The reservation ends without a binding, and the pod waits again."""
    return _unreserve(ledger, event.uid, event.node, envelope)


def intended(ledger: Ledger, event: binding.BindIntended, envelope: Envelope) -> Touched:
    """The binder acts on the reservation: from now on only a definite answer ends it."""
    entry = ledger.pods.get(event.uid)
    if entry is not None and entry.stage == "reserved":
        entry.stage = "intended"
    return ()


def bound(ledger: Ledger, event: binding.PodBound, envelope: Envelope) -> Touched:
    """The API server has the binding."""
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    if entry.stage in ("pending", "reserved", "intended"):
        entry.stage = "bound"
    return _is_on(ledger, entry, event.node, envelope)


def refused(ledger: Ledger, event: binding.BindRefused, envelope: Envelope) -> Touched:
    """The API server refused the binding for good.

    A pod that does not exist leaves the ledger, and a pod on another node waits for its
    observation. A pod that is being deleted waits for its end and is not decided again, because the
    binder may have seen the deletion before the observer."""
    if event.cause in ("gone", "other_uid"):
        end = cluster.PodEnded(uid=event.uid, cause="deleted", node=event.node)
        return ended(ledger, end, envelope)
    if event.cause == "terminating" and event.uid in ledger.pods:
        ledger.pods[event.uid].terminating = True
    return _unreserve(ledger, event.uid, event.node, envelope)


def _unreserve(ledger: Ledger, uid: str, node: str, envelope: Envelope) -> Touched:
    entry = ledger.pods.get(uid)
    if entry is None or entry.stage not in ("reserved", "intended") or entry.node != node:
        return ()
    if entry.booking is not None:
        _forget_owners(ledger, entry)
    release_charge(ledger, entry, envelope.position, came=False)
    if entry.booking is not None:
        entry.pod, entry.booking.allocation = entry.booking.pod, None
        entry.booking.since_us = envelope.time_us
    entry.drawn_from = ""
    entry.stage, entry.reserved_at, entry.certain, entry.one_zone = "pending", 0, False, ""
    entry.allocation = None
    return (node,)


def nominated(ledger: Ledger, event: scheduling.PodNominated, envelope: Envelope) -> Touched:
    """A preemptor claims what its victims will free."""
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    touched = _drop_claim(ledger, entry)
    node = node_of(ledger, event.node)
    node.claims[event.uid] = event.zones
    if event.devices:
        node.device_claims[event.uid] = event.devices
    subtract(node.free_min, event.zones)
    entry.nominated, entry.victims = event.node, event.victims
    return tuple(sorted({*touched, event.node}))


def nomination_withdrawn(
    ledger: Ledger, event: scheduling.NominationWithdrawn, envelope: Envelope
) -> Touched:
    entry = ledger.pods.get(event.uid)
    return () if entry is None else _drop_claim(ledger, entry)


def _drop_claim(ledger: Ledger, entry: LedgerPod) -> Touched:
    name = entry.nominated
    if not name:
        return ()
    entry.nominated, entry.victims = "", ()
    node = ledger.nodes.get(name)
    zones = node.claims.pop(entry.pod.uid, None) if node is not None else None
    if node is None or zones is None:
        return ()
    node.device_claims.pop(entry.pod.uid, None)
    restore(node.free_min, zones)
    return (name,)
