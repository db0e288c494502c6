"""Volumes of claims: a pod uses nodes that reach all of them, and that attach one more of each
driver.

Semantics: kube-scheduler's VolumeBinding, VolumeZone, NodeVolumeLimits and VolumeRestrictions
(1.36), as far as nothing has to be provisioned: a claim that is not bound keeps its pod waiting,
because binding it is another scheduler's work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    RefusalReason,
)
from services.scheduler.filter.constraints.placed_pods import Texts
from services.scheduler.filter.constraints.predicates import matches, matching_nodes
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_columns import NodeColumns
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.state.cluster_objects import VOLUMES, ClusterObjects
from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.events.cluster_events import NodeObserved
from shared.events.surroundings_events import VolumeObserved

_TOPOLOGY = "topology.kubernetes.io/"
_BETA_TOPOLOGY = "failure-domain.beta.kubernetes.io/"

# More volumes than a node can have.
NO_LIMIT = 1 << 30

UNBOUND = RefusalReason(
    name=Reason.VOLUME_UNBOUND,
    phrase="pod has unbound immediate PersistentVolumeClaims (%s)",
    remedy="wait until the claim is bound; a claim that is bound with its first pod "
    "(WaitForFirstConsumer) needs kube-scheduler, with Topolog as its extender (docs/extender.md)",
)
NOT_OURS = RefusalReason(
    name=Reason.VOLUME_NOT_OURS,
    phrase="persistentvolumeclaim %s is being deleted, or was created for another pod",
    remedy="use another claim",
)
IN_USE = RefusalReason(
    name=Reason.VOLUME_IN_USE,
    phrase="node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod "
    "access mode",
    remedy="wait until the pod that uses the claim ends: its access mode is ReadWriteOncePod",
)
NOT_REACHED = RefusalReason(
    name=Reason.VOLUME_ELSEWHERE,
    phrase="node(s) had volume node affinity conflict",
    remedy="use nodes that the volume's node affinity and zone labels allow, or another volume",
)
TOO_MANY = RefusalReason(
    name=Reason.VOLUME_LIMIT,
    phrase="node(s) exceed max volume count",
    remedy="wait until a pod with such a volume ends there, or use more nodes",
)


class Volumes(Constraint):
    """Keeps ["namespace/claim", ...]."""

    name = VOLUMES
    handles = frozenset(("spec.volumes.persistentVolumeClaim", "spec.volumes.ephemeral"))
    reasons = (UNBOUND, NOT_OURS, IN_USE, NOT_REACHED, TOO_MANY)

    def read(self, spec: Json, pod: Pod) -> Any:
        claims = set()
        for path, volume in fields.objects(spec, "volumes", "spec"):
            if volume.get("persistentVolumeClaim") is not None:
                claim = fields.mapping(volume, "persistentVolumeClaim", path)
                claims.add(fields.name(claim, "claimName", f"{path}.persistentVolumeClaim"))
            elif volume.get("ephemeral") is not None:
                claims.add(f"{pod.name}-{fields.name(volume, 'name', path)}")
        return [f"{pod.namespace}/{claim}" for claim in sorted(claims)] or None

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        unusable = _unusable(pod, kept, view)
        if unusable is not None:
            reason, unusable_claim = unusable
            return lambda node_info: reason.refusal(node_info.name, unusable_claim)
        volumes: list[tuple[str, VolumeObserved]] = []
        for claim in kept:
            volume = view.cluster_objects.volume_of(claim)
            if volume is not None:
                volumes.append((claim, volume))

        def check(node_info: NodeInfo) -> Refusal | None:
            for claim, volume in volumes:
                if node_info.observed is not None and not reaches(volume, node_info.observed):
                    return NOT_REACHED.refusal(node_info.name, claim)
            full = _full_driver(node_info.name, [volume for _, volume in volumes], view)
            return TOO_MANY.refusal(node_info.name, full) if full else None

        return check

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        if _unusable(pod, kept, view) is not None:
            return ~view.columns.all()
        bound = [view.cluster_objects.volume_of(claim) for claim in kept]
        volumes = [volume for volume in bound if volume is not None]
        passing = view.columns.all()
        for volume in volumes:
            passing &= reaching_nodes(volume, view.columns)
        # Few nodes are as full as that, and volumes of other drivers may be what fills them.
        for slot in np.flatnonzero(passing & _may_be_full(volumes, view)).tolist():
            node_info = view.columns.slots[slot]
            if node_info is not None and _full_driver(node_info.name, volumes, view):
                passing[slot] = False
        return passing


def _unusable(
    pod: Pod, claims: Sequence[str], view: ClusterView
) -> tuple[RefusalReason, str] | None:
    """The first claim with which the pod can use no node, and why."""
    users = view.placed_pods.texts(VOLUMES).counts
    own_uses = int(view.placed_pods.has(pod.uid))
    for claim in claims:
        observed = view.cluster_objects.claims.get(claim)
        if observed is None or view.cluster_objects.volume_of(claim) is None:
            return UNBOUND, claim
        if observed.leaving or observed.owner not in ("", pod.uid):
            return NOT_OURS, claim
        if observed.alone and users.get(claim, 0) > own_uses:
            return IN_USE, claim
    return None


def reaches(volume: VolumeObserved, node: NodeObserved) -> bool:
    """Return whether the node reaches the volume. Zone labels of a volume exclude only nodes that
    have such labels themselves.
    """
    if volume.terms and not any(matches(term, node) for term in volume.terms):
        return False
    if not volume.zones or not _has_zone_labels(node):
        return True
    return all(_zone(node, key) in values for key, values in volume.zones)


def reaching_nodes(volume: VolumeObserved, columns: NodeColumns) -> Bools:
    """Return by slot which nodes reach the volume, or were not observed."""
    reaching = columns.all()
    if volume.terms:
        reaching = reduce(or_, (matching_nodes(term, columns) for term in volume.terms))
    if volume.zones:
        in_zones = (_in_zone(key, values, columns) for key, values in volume.zones)
        has_zone_labels = columns.observed_where("has zone labels", _has_zone_labels, bool)
        reaching &= reduce(and_, in_zones) | ~has_zone_labels
    return reaching | ~columns.observed("is observed", lambda _node: True).exists()


def _in_zone(key: str, values: Sequence[str], columns: NodeColumns) -> Bools:
    return columns.observed(("zone label", key), lambda node: _zone(node, key)).among(values)


def _has_zone_labels(node: NodeObserved) -> bool:
    return any(key.startswith((_TOPOLOGY, _BETA_TOPOLOGY)) for key in node.labels)


def _zone(node: NodeObserved, key: str) -> str | None:
    """The node's value of a zone label, by its present name if the node lacks the beta one."""
    return node.labels.get(key, node.labels.get(key.replace(_BETA_TOPOLOGY, _TOPOLOGY)))


def _may_be_full(volumes: Sequence[VolumeObserved], view: ClusterView) -> Bools:
    """Return by slot which nodes have so many claims that `_full_driver` may name a driver."""
    objects = view.cluster_objects
    claims = view.placed_pods.texts(VOLUMES).numbers.by_slot()
    full = ~view.columns.all()
    for driver, wanted in Counter(volume.driver for volume in volumes).items():
        limits = view.columns.numbers(
            ("volume limit", driver),
            _limits(driver, objects),
            objects.limits,
            objects.limit_changes,
        )
        full |= claims + wanted > limits
    return full


def _limits(driver: str, objects: ClusterObjects) -> Callable[[NodeInfo], int]:
    def limit(node_info: NodeInfo) -> int:
        limits = objects.limits.get(node_info.name)
        most = limits.limits.get(driver, NO_LIMIT) if limits is not None else NO_LIMIT
        return min(most, NO_LIMIT)

    return limit


def _full_driver(node: str, volumes: Sequence[VolumeObserved], view: ClusterView) -> str:
    """The driver of which the node attaches no more, "" for none. Volumes that several pods share
    count once.
    """
    limits = view.cluster_objects.limits.get(node)
    if limits is None:
        return ""
    texts = view.placed_pods.texts(VOLUMES)
    claims = texts.on(node)
    for driver in sorted({volume.driver for volume in volumes} & limits.limits.keys()):
        wanted = {volume.handle for volume in volumes if volume.driver == driver}
        most = limits.limits[driver]
        if len(claims) + len(wanted) <= most:
            continue
        attached = _attached(node, texts, view).get(driver, set())
        if len(attached | wanted) > most:
            return driver
    return ""


def _attached(node: str, texts: Texts, view: ClusterView) -> dict[str, set[str]]:
    """Driver -> handles on the node, kept until its pods or the claims change."""
    bindings = view.cluster_objects.bindings
    kept = texts.derived.get(node)
    if kept is None or kept[0] != bindings:
        attached = view.cluster_objects.attached(texts.on(node))
        kept = texts.derived[node] = bindings, attached
    attached_by_driver: dict[str, set[str]] = kept[1]
    return attached_by_driver
