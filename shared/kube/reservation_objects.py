"""Reservation objects (scheduling.koordinator.sh/v1alpha1), read as bookings.

1. A Reservation is ours if the template's schedulerName is. Its phase and its node come from
   koord-scheduler, so only the phases after its end count.
2. Owners by labels and by a pod's name are kept. What cannot be kept is a problem, with which the
   booking waits.
3. Without `ttl` and `expires` a Reservation ends after a day, as in Koordinator, and with its first
   pod unless `allocateOnce` is false.

Source: Koordinator a7a1b76b, apis/scheduling/v1alpha1/reservation_types.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from shared.domain.booking import AllocatePolicy, Owner, Terms, pod_for
from shared.domain.durations import nanoseconds
from shared.domain.effective import effective_request
from shared.domain.fields import RefusedError, mapping, part
from shared.domain.manifest import ManifestError, pod_from_manifest
from shared.domain.pod import Constraints, Pod
from shared.events.scheduling_events import BookingMade
from shared.owned.request import NUMA_TOPOLOGY_SPEC

ENDED = ("Succeeded", "Failed")
DAY_US = 86_400_000_000


class _Selector(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    match_labels: dict[str, str] = {}


class _Reference(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Owner(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An owner of which every field must match. One by its controller cannot be read."""

    object: _Reference | None = None
    label_selector: _Selector | None = None


class _Spec(msgspec.Struct, rename="camel"):
    template: dict[str, Any] | None = None
    owners: list[_Owner] = []
    ttl: str | None = None
    expires: datetime | None = None
    pre_allocation: bool = False
    allocate_once: bool | None = None
    allocate_policy: str = ""
    unschedulable: bool = False


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
    owners = tuple([owner for each in spec.owners if (owner := _owner(each)) != Owner()])
    manifest = {**(spec.template or {}), "kind": "Pod"}
    in_template = mapping(manifest, "metadata", "spec.template")
    manifest["metadata"] = {**in_template, "name": metadata.name}
    pod = pod_from_manifest(manifest)
    if isinstance(pod, ManifestError):
        raise ValueError(f"spec.template: {pod}")
    for problem, is_asked in (
        ("spec.owners: no labels and no pod's name", not owners),
        ("spec.preAllocation is not kept", spec.pre_allocation),
        ("spec.unschedulable is not kept", spec.unschedulable),
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
    reference = owner.object or _Reference()
    labels = owner.label_selector.match_labels if owner.label_selector is not None else {}
    return Owner(reference.namespace, reference.name, labels)


def _us(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
