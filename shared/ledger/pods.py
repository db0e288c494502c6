"""Folding a pod's life: observed, reserved, intended, bound, running, ended. Each handler returns
the nodes it touched.
"""

from __future__ import annotations

from shared.domain.pod import Pod
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events.envelope import Envelope
from shared.ledger.alike import share
from shared.ledger.charging import put, stop_counting, take
from shared.ledger.nodes import node_of
from shared.ledger.proof import has_only_inits
from shared.ledger.recompute import narrow_charge, recompute, redemand
from shared.ledger.state import Charge, Ledger, LedgerNode, LedgerPod
from shared.ledger.view import restore, subtract

Touched = tuple[str, ...]


def observed(ledger: Ledger, event: cluster.PodObserved, at: Envelope) -> Touched:
    """A pod was seen, or seen changed. One seen on a node is charged there from now on, whoever
    bound it.
    """
    share((event.pod,))
    entry = ledger.pods.get(event.pod.uid)
    if entry is None:
        entry = ledger.pods[event.pod.uid] = LedgerPod(pod=event.pod)
    before = entry.node
    changed = entry.pod != event.pod
    entry.observed_at, entry.problem = at.position, event.problem
    entry.resource_version = event.resource_version
    entry.static, entry.terminating = event.static, event.terminating
    if changed:
        if entry.node and not _asks_alike(entry.pod, event.pod):
            _respecified(ledger, entry, event)
        entry.pod = event.pod
    if not event.node:
        return (before,) if changed and before else ()
    touched = _stands(ledger, entry, event.node, at)
    entry.stage = "running" if event.phase == "Running" else "bound"
    _admit(
        ledger.nodes[event.node],
        event.pod.uid,
        at.position if event.phase == "Running" else 0,
        event.started_s,
    )
    return tuple(sorted({*touched, *_drop_claim(ledger, entry)})) if entry.nominated else touched


def _stands(ledger: Ledger, entry: LedgerPod, name: str, at: Envelope) -> Touched:
    """The pod is charged there, and nowhere else any more."""
    before = entry.node
    if before == name:
        return (name,)
    put(ledger, entry, name, at.position)
    return tuple(sorted((before, name))) if before else (name,)


def _asks_alike(one: Pod, other: Pod) -> bool:
    """Is the same charged for both? Labels change with the binding already (PodTopologyLabels,
    Kubernetes 1.35).
    """
    same_containers = one.containers == other.containers and one.qos == other.qos
    return same_containers and one.overhead == other.overhead and one.pod_level == other.pod_level


def _respecified(ledger: Ledger, entry: LedgerPod, event: cluster.PodObserved) -> None:
    """A charged pod that asks for something else (resized in place) keeps its charge; its demand is
    computed again. It is the same pod: what its kubelet lists is its own, and when it was sent
    stays known."""
    name, charged_at = entry.node, entry.charged_at
    node = ledger.nodes[name]
    before = node.charges[event.pod.uid]
    take(ledger, entry, ledger.position)
    entry.pod = event.pod
    put(ledger, entry, name, charged_at)
    charge = node.charges[event.pod.uid]
    charge.alias, charge.sent_at, charge.started_s = before.alias, before.sent_at, before.started_s
    redemand(node, charge, entry)
    charge.runs_at = ledger.position if entry.stage == "running" else 0
    if charge.key in node.ended:
        node.ended[charge.key].lives = None  # it did not end
    recompute(node)


def running(ledger: Ledger, event: cluster.PodRunning, at: Envelope) -> Touched:
    """The kubelet admitted the pod."""
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    touched = _stands(ledger, entry, event.node, at)
    entry.stage = "running"
    _admit(ledger.nodes[event.node], event.uid, at.position, event.started_s)
    return touched


def _admit(node: LedgerNode, uid: str, runs_at: int, started_s: int) -> None:
    """Once a pod runs, the memory of its init containers is free, and the pod is proven where only
    they demand anything.
    """
    charge = node.charges[uid]
    if (charge.runs_at > 0) == (runs_at > 0):
        return
    charge.runs_at = runs_at
    if started_s:
        _started(charge, started_s)
    if charge.zones and (charge.confirmed or has_only_inits(charge)):
        recompute(node, (charge.key,))


def _started(charge: Charge, started_s: int) -> None:
    """Only of one that was sent since the node's kubelet may have admitted everybody anew: the
    start that a status tells was the first one."""
    if charge.sent_at and not charge.started_s:
        charge.started_s = started_s


def ended(ledger: Ledger, event: cluster.PodEnded, at: Envelope) -> Touched:
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
    take(ledger, entry, at.position, came, event.finished_s, absent)
    return (*touched, node)


def _ended_for_certain(ledger: Ledger, event: cluster.PodEnded) -> Touched:
    """A pod that ended by absence is confirmed to be deleted: reports keep no charge of it."""
    node = ledger.nodes.get(event.node)
    if node is None or event.cause == "absent_from_list":
        return ()
    for key, ended in node.ended.items():
        if ended.absent is not None and ended.absent.uid == event.uid:
            stop_counting(node, key)
            recompute(node, ())
            return (event.node,)
    return ()


def verdict_changed(ledger: Ledger, event: scheduling.PodVerdictChanged, at: Envelope) -> Touched:
    """Remember the last verdict, so that repeats are not facts."""
    entry = ledger.pods.get(event.uid)
    if entry is not None:
        entry.verdict = event.message
    return ()


def reserved(ledger: Ledger, event: scheduling.PodReserved, at: Envelope) -> Touched:
    """A node was chosen; the charge follows as `NodeCharged` of the same commit."""
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    entry.stage, entry.reserved_at = "reserved", at.position
    entry.verdict, entry.predicted = "", dict(event.predicted)
    return _drop_claim(ledger, entry) if entry.nominated else ()


def charged(ledger: Ledger, event: scheduling.NodeCharged, at: Envelope) -> Touched:
    """The pod is charged to the node from here on."""
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    touched = _stands(ledger, entry, event.node, at)
    node = ledger.nodes[event.node]
    charge = node.charges[event.uid]
    if charge.charged_at == at.position:
        charge.sent_at = at.position
    if event.narrowed:
        narrow_charge(node, charge, event.narrowed)
    return touched


def withdrawn(ledger: Ledger, event: scheduling.ReservationWithdrawn, at: Envelope) -> Touched:
    """The reservation ends without a binding; the pod waits again."""
    return _unreserve(ledger, event.uid, event.node, at)


def intended(ledger: Ledger, event: binding.BindIntended, at: Envelope) -> Touched:
    """The binder took the reservation up: from here only a definite answer ends it."""
    entry = ledger.pods.get(event.uid)
    if entry is not None and entry.stage == "reserved":
        entry.stage = "intended"
    return ()


def bound(ledger: Ledger, event: binding.PodBound, at: Envelope) -> Touched:
    """The API server holds the binding."""
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    if entry.stage in ("pending", "reserved", "intended"):
        entry.stage = "bound"
    return _stands(ledger, entry, event.node, at)


def refused(ledger: Ledger, event: binding.BindRefused, at: Envelope) -> Touched:
    """A definite no. A pod that is gone leaves the ledger; one that stands elsewhere waits for its
    observation. One that is being deleted waits for its end: the binder may have seen that before
    the observer did, and it is not decided again."""
    if event.cause in ("gone", "other_uid"):
        end = cluster.PodEnded(uid=event.uid, cause="deleted", node=event.node)
        return ended(ledger, end, at)
    if event.cause == "terminating" and event.uid in ledger.pods:
        ledger.pods[event.uid].terminating = True
    return _unreserve(ledger, event.uid, event.node, at)


def _unreserve(ledger: Ledger, uid: str, node: str, at: Envelope) -> Touched:
    entry = ledger.pods.get(uid)
    if entry is None or entry.stage not in ("reserved", "intended") or entry.node != node:
        return ()
    take(ledger, entry, at.position, came=False)
    entry.stage, entry.reserved_at = "pending", 0
    return (node,)


def nominated(ledger: Ledger, event: scheduling.PodNominated, at: Envelope) -> Touched:
    """A preemptor claims what its victims will free."""
    entry = ledger.pods.get(event.uid)
    if entry is None:
        return ()
    touched = _drop_claim(ledger, entry)
    node = node_of(ledger, event.node)
    node.claims[event.uid] = event.zones
    subtract(node.free_min, event.zones)
    entry.nominated, entry.victims = event.node, event.victims
    return tuple(sorted({*touched, event.node}))


def nomination_withdrawn(
    ledger: Ledger, event: scheduling.NominationWithdrawn, at: Envelope
) -> Touched:
    """The claim ends."""
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
    restore(node.free_min, zones)
    return (name,)
