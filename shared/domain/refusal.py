"""Why a node cannot take a pod, as values with numbers: a closed set of reasons. This module does
not know how they were computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from shared.domain.quantity import format_amount


class Reason(StrEnum):
    """The stored names of Topolog's own reasons, in the order in which they are tested."""

    INVALID_POD = "invalid pod"
    UNSUPPORTED = "unsupported constraint"
    UNKNOWN_NODE = "node not seen yet"
    NODE_NAME = "not the node that the pod names"
    NODE_SELECTOR = "node selector does not match"
    NODE_AFFINITY = "required node affinity does not match"
    UNSCHEDULABLE = "node unschedulable"
    NOT_READY = "node not ready"
    TAINT = "untolerated taint"
    SET_ASIDE = "node set aside for such pods"
    HELD = "held for an overdue pod"
    NOMINATED = "kept free for a nominated pod of another scheduler"
    FEATURE = "feature not declared by the node"
    KEY_NOT_KEPT = "key of another scheduler not kept"
    GIVEN_BY_DRIVER = "given by a DRA driver"
    HOST_PORT = "host port taken"
    POD_AFFINITY = "no pod of its required affinity there"
    POD_ANTI_AFFINITY = "required anti-affinity"
    TOPOLOGY_SPREAD = "topology spread too uneven"
    VOLUME_UNBOUND = "volume claim not bound"
    VOLUME_NOT_OURS = "volume claim being deleted, or of another pod"
    VOLUME_IN_USE = "volume claim in use by another pod"
    VOLUME_ELSEWHERE = "volume not reached from there"
    VOLUME_LIMIT = "no more volumes attached"
    NODE_RESOURCE = "too little on the node"
    TOO_MANY_PODS = "too many pods"
    NO_REPORT = "no topology report"
    REPORT_EXPIRED = "topology report expired"
    REPORT_MALFORMED = "topology report malformed"
    POLICY_UNKNOWN = "unknown topology policy"
    POLICY_MISMATCH = "topology policy does not match"
    NO_ZONES = "node without zones"
    UNLISTED = "resource in no zone of the report"
    ONE_ZONE = "not certain to be in one zone"
    KUBELET_FAILS = "its kubelet would fail"
    NEVER_ALIGNED = "can never be aligned there"
    NO_SINGLE_ZONE = "no single zone"
    NO_ZONE_SET = "no zone set"
    TOO_LITTLE_FREE = "too little free for exclusive use"
    SMT_ALIGNMENT = "not a whole number of physical cores"
    NOT_ON_EVERY_BRANCH = "not certain while other pods are unsettled"
    BRANCH_LIMIT = "too many possible outcomes to check"


# Reasons of nodes that would take the pod if one zone, or one set of zones, had room.
ZONE_REASONS = frozenset(
    (
        Reason.NEVER_ALIGNED,
        Reason.ONE_ZONE,
        Reason.NO_SINGLE_ZONE,
        Reason.NO_ZONE_SET,
        Reason.NOT_ON_EVERY_BRANCH,
        Reason.BRANCH_LIMIT,
    )
)


# A full node names a hundred pods in each zone, and texts name five.
HOLDERS_NAMED = 5


class ZoneState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One zone of a refusing node, for the resource that fell short.

    `free` is guaranteed, `possibly_free` is the most that may be free. `holders` are uids of
    pods that hold or may hold it (by their charges), and `more_holders` is how many further pods
    do.
    """

    zone: int
    free: int
    possibly_free: int
    allocatable: int
    holders: tuple[str, ...] = ()
    more_holders: int = 0


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node's refusal of one pod.

    `asked` and `best` are in the unit of `resource`. `best` is the most that is guaranteed free in
    any admissible zone (`best_zone`) or on the node as a whole (None). `subject` names the label,
    taint or field concerned. `policy`, `scope` and `policy_source` are the rule that was applied
    and its source. `phrase` is the text that events count nodes by, in kube-scheduler's words if it
    has some (empty: explanations write it from the amounts). `remedy` says what would make the pod
    fit. A constraint may give a `reason` of its own, which is no member of `Reason`.
    """

    node: str
    reason: str
    subject: str = ""
    resource: str = ""
    container: str = ""
    asked: int = 0
    best: int = 0
    best_zone: int | None = None
    zones: tuple[ZoneState, ...] = ()
    policy: str = ""
    scope: str = ""
    policy_source: str = ""
    remedy: str = ""
    phrase: str = ""


def zone_wait(detail: Sequence[Mapping[str, object]]) -> str:
    """Return the resource that no zone has for a pod that some node as a whole could take, `zone`
    if that is no single resource, and "" for a pod that waits for a node.

    `detail` are the refusals of the nearest nodes as JSON values (`PodVerdictChanged.detail`).
    """
    nearest = detail[0] if detail else {}
    if nearest.get("reason") not in ZONE_REASONS:
        return ""
    return str(nearest.get("resource") or "zone")


def zone_text(detail: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the zones that a pod misses; "" for a pod that waits for a node."""
    resource = zone_wait(detail)
    if not resource:
        return ""
    nearest = detail[0]
    text = "The pod waits for a zone, not for a node"
    if nearest.get("asked"):
        text += f": it requests {format_amount(resource, nearest['asked'])} {resource} together"
    zones = [
        f"zone {zone['zone']} has {_free(resource, zone)} free of "
        f"{format_amount(resource, zone['allocatable'])}"
        for zone in nearest.get("zones") or ()
    ]
    if zones:
        text += f", and on {nearest['node']}, the nearest node, {', '.join(zones)}"
    return f"{text}. {nearest['remedy']}" if nearest.get("remedy") else f"{text}."


def _free(resource: str, zone: Mapping[str, Any]) -> str:
    """Return what is free in a zone, `0 to 6` if that depends on pending pods."""
    least, most = (max(0, zone.get(name, zone["free"])) for name in ("free", "possibly_free"))
    text = format_amount(resource, least)
    return text if most <= least else f"{text} to {format_amount(resource, most)}"
