"""Reservation objects (scheduling.koordinator.sh/v1alpha1), read as bookings.

1. A Reservation is ours if the template's schedulerName is. Of its status only the phases after
   its end count. `status_of` is the status that Topolog writes if it is asked to fulfil them.
2. Owners by label selector, by controller and by the pod itself are kept. What cannot be kept is a
   problem, with which the booking waits.
3. Without `ttl` and `expires` a Reservation ends after a day, as in Koordinator, and with its first
   pod unless `allocateOnce` is false.

Source: Koordinator a7a1b76b, apis/scheduling/v1alpha1/reservation_types.go.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.domain.booking import AllocatePolicy, Owner, Terms, pod_for
from shared.domain.durations import nanoseconds
from shared.domain.effective import effective_request
from shared.domain.fields import RefusedError, mapping, part, texts
from shared.domain.manifest import ManifestError, pod_from_manifest
from shared.domain.pod import Constraints, Pod
from shared.domain.quantity import format_amount
from shared.domain.requirements import Requirement, requirements
from shared.domain.resources import Amounts, add
from shared.events.scheduling_events import BookingMade
from shared.ledger.charging import drawn
from shared.ledger.state import Ledger, LedgerPod
from shared.owned.request import NUMA_TOPOLOGY_SPEC

ENDED = ("Succeeded", "Failed")
# The phase after the end of a booking: its first pod came, or its time was over.
ENDED_BY = {"used": "Succeeded", "expired": "Failed"}
DAY_US = 86_400_000_000


class _Reference(msgspec.Struct, rename="camel"):
    """An object, or with `controller` a controller of pods."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    kind: str = ""
    controller: bool | None = None


class _Owner(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An owner of which every field must match."""

    object: _Reference | None = None
    controller: _Reference | None = None
    label_selector: dict[str, Any] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    template: dict[str, Any] | None = None
    owners: list[_Owner] = []
    ttl: str | None = None
    expires: datetime | None = None
    pre_allocation: bool = False
    allocate_once: bool | None = None
    allocate_policy: str = ""
    unschedulable: bool = False
    taints: list[dict[str, Any]] = []


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    creation_timestamp: datetime
    resource_version: str = ""


class _Reservation(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


def booking_of(obj: dict[str, Any], scheduler_name: str) -> BookingMade | None:
    """Return the booking of a Reservation, None if another scheduler places it."""
    if scheduler_of(obj) != scheduler_name:
        return None
    metadata = part(obj, "metadata")
    uid, name = str(metadata.get("uid", "")), str(metadata.get("name", ""))
    version = str(metadata.get("resourceVersion", ""))
    nothing = Pod("", "", "", scheduler_name=scheduler_name)
    try:
        terms, made = _read(obj)
        pod = pod_for(uid, name, effective_request(made), template_of(made, scheduler_name))
        return BookingMade(uid, pod, terms, version)
    except (msgspec.MsgspecError, RefusedError, ValueError, RecursionError) as error:
        pod = pod_for(uid, name, {}, nothing)
        return BookingMade(uid, pod, Terms(), version, f"Reservation {name}: {error}")


def _read(obj: dict[str, Any]) -> tuple[Terms, Pod]:
    reservation = msgspec.convert(obj, _Reservation)
    spec, metadata = reservation.spec, reservation.metadata
    owners = tuple([_owner(owner) for owner in spec.owners])
    manifest = {**(spec.template or {}), "kind": "Pod"}
    in_template = mapping(manifest, "metadata", "spec.template")
    manifest["metadata"] = {**in_template, "name": metadata.name}
    pod = pod_from_manifest(manifest)
    if isinstance(pod, ManifestError):
        raise ValueError(f"spec.template: {pod}")
    for problem, is_asked in (
        ("spec.owners: write at least one", not owners),
        ("spec.preAllocation is not kept", spec.pre_allocation),
        ("spec.unschedulable is not kept", spec.unschedulable),
        ("spec.taints are not kept", bool(spec.taints)),
    ):
        if is_asked:
            raise ValueError(problem)
    lasts_ns = DAY_US * 1000 if spec.ttl is None else nanoseconds(spec.ttl)
    if lasts_ns is None:
        raise ValueError(f"spec.ttl: {spec.ttl!r} is no duration")
    expires_us = _us(metadata.creation_timestamp) + lasts_ns // 1000 if lasts_ns else 0
    if spec.expires is not None:
        expires_us = _us(spec.expires)
    policy: AllocatePolicy = "Restricted" if spec.allocate_policy == "Restricted" else "Aligned"
    return Terms(owners, policy, spec.allocate_once is not False, expires_us), pod


def status_of(ledger: Ledger, entry: LedgerPod) -> dict[str, Any]:
    """Return the status of the Reservation of this booking, as a merge patch."""
    booking, node = entry.booking, ledger.nodes.get(entry.node)
    assert booking is not None
    users, ended, since_us = booking.users, booking.ended, booking.since_us
    if not ended and node is not None:
        users = tuple([ledger.pods[uid].pod for uid in drawn(ledger, node, entry.pod.uid)])
    name, why = entry.node or booking.ended_on, entry.problem or entry.verdict
    if ended and not name:  # It was never placed.
        phase, conditions = ENDED_BY[ended], [_condition("Ready", since_us, "Expired")]
    elif not name:
        phase = "Pending"
        conditions = [_condition("Scheduled", since_us, "Unschedulable", why)] if why else []
    else:
        phase = ENDED_BY.get(ended, "Available")
        reason = "Expired" if ended == "expired" else phase
        conditions = [
            _condition("Scheduled", since_us, "Scheduled"),
            _condition("Ready", since_us, reason),
        ]
    reserved, taken = effective_request(booking.pod), Amounts()
    for pod in users:
        taken = add(taken, effective_request(pod))
    shared = {
        resource: min(amount, taken.get(resource, 0)) for resource, amount in reserved.items()
    }
    return {
        "phase": phase,
        "nodeName": name or None,
        "conditions": conditions,
        "currentOwners": [
            {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid} for pod in users
        ],
        "allocatable": _texts(reserved) if name else None,
        "allocated": _texts(shared) if users else None,
    }


def _texts(amounts: Amounts) -> dict[str, str]:
    return {name: format_amount(name, amount) for name, amount in sorted(amounts.items())}


# Reasons of conditions that hold.
_TRUE = ("Scheduled", "Available")


def _condition(kind: str, since_us: int, reason: str, message: str = "") -> dict[str, Any]:
    moment = datetime.fromtimestamp(since_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": kind,
        "status": "True" if reason in _TRUE else "False",
        "reason": reason,
        "message": message,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
    }


def scheduler_of(obj: dict[str, Any]) -> str:
    """Return the scheduler that is to place a Reservation."""
    pod_spec = part(part(part(obj, "spec"), "template"), "spec")
    return str(pod_spec.get("schedulerName") or "")


def template_of(pod: Pod, scheduler_name: str) -> Pod:
    """Return what of a pod counts for a booking that is like it: its class of service, its policy,
    and the nodes where it may run."""
    kept = {key: text for key, text in pod.annotations.items() if key == NUMA_TOPOLOGY_SPEC}
    asked = pod.constraints
    return Pod(
        "",
        "",
        "",
        pod.qos,
        scheduler_name=scheduler_name,
        annotations=kept,
        constraints=Constraints(
            node_selector=asked.node_selector,
            required_affinity=asked.required_affinity,
            tolerations=asked.tolerations,
        ),
    )


def _owner(owner: _Owner) -> Owner:
    pod, controller = owner.object or _Reference(), owner.controller
    if controller is None:
        return _selected(owner, pod, pod.namespace)
    if controller.controller is False:
        raise ValueError("spec.owners: owners that are no controllers are not kept")
    namespaces = {pod.namespace, controller.namespace} - {""}
    if len(namespaces) > 1:
        raise ValueError("spec.owners: object and controller are in different namespaces")
    names = controller.api_version, controller.kind, controller.name, controller.uid
    made = _selected(owner, pod, next(iter(namespaces), ""))
    return msgspec.structs.replace(made, controller=names)


def _selected(owner: _Owner, pod: _Reference, namespace: str) -> Owner:
    selector, where = owner.label_selector or {}, "spec.owners.labelSelector"
    labels = texts(selector, "matchLabels", where)
    kept = requirements({"of": {**selector, "matchLabels": {}}}, "of", "spec.owners.labelSelector")
    expressions = msgspec.convert(kept, tuple[Requirement, ...])
    return Owner(namespace, pod.name, labels, pod.uid, expressions)


def _us(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
