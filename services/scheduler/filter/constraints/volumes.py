"""Volumes of claims: a pod goes where all of them can be reached, and where the node attaches one
more of each driver.

Semantics: kube-scheduler's VolumeBinding, VolumeZone, NodeVolumeLimits and VolumeRestrictions
(1.36), as far as nothing has to be provisioned: a claim that is not bound keeps its pod waiting,
since binding it to a place is another scheduler's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.scheduler.filter.constraints.constraint import Check, ClusterView
from services.scheduler.filter.constraints.placed_pods import Texts
from services.scheduler.filter.constraints.predicates import matches
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.state.cluster_objects import VOLUMES
from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.events.cluster_events import NodeObserved
from shared.events.surroundings_events import VolumeObserved

_TOPOLOGY = "topology.kubernetes.io/"
_TOPOLOGY_BEFORE = "failure-domain.beta.kubernetes.io/"


class Volumes:
    """Kept: ["namespace/claim", ...]."""

    name = VOLUMES
    handles = frozenset(("spec.volumes.persistentVolumeClaim", "spec.volumes.ephemeral"))

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
        if not kept:
            return None
        hopeless = _unusable(pod, kept, view)
        if hopeless is not None:
            reason, claim = hopeless
            return lambda node_info: Refusal(node_info.name, reason, claim)
        volumes = [
            (claim, volume)
            for claim in kept
            if (volume := view.cluster_objects.volume_of(claim)) is not None
        ]

        def check(node_info: NodeInfo) -> Refusal | None:
            for claim, volume in volumes:
                if node_info.observed is not None and not reaches(volume, node_info.observed):
                    return Refusal(node_info.name, Reason.VOLUME_ELSEWHERE, claim)
            full = _full(node_info.name, [volume for _, volume in volumes], view)
            return Refusal(node_info.name, Reason.VOLUME_LIMIT, full) if full else None

        return check


def _unusable(pod: Pod, claims: Sequence[str], view: ClusterView) -> tuple[Reason, str] | None:
    """The first claim that lets the pod go nowhere, and why."""
    held = view.placed_pods.texts(VOLUMES).held
    own = int(view.placed_pods.stands(pod.uid))
    for claim in claims:
        known = view.cluster_objects.claims.get(claim)
        if known is None or view.cluster_objects.volume_of(claim) is None:
            return Reason.VOLUME_UNBOUND, claim
        if known.leaving or known.owner not in ("", pod.uid):
            return Reason.VOLUME_NOT_OURS, claim
        if known.alone and held.get(claim, 0) > own:
            return Reason.VOLUME_IN_USE, claim
    return None


def reaches(volume: VolumeObserved, node: NodeObserved) -> bool:
    """Can the volume be reached from the node? Zone labels of a volume bar only nodes that have
    such labels themselves.
    """
    if volume.terms and not any(matches(term, node) for term in volume.terms):
        return False
    if not volume.zones or not any(
        key.startswith((_TOPOLOGY, _TOPOLOGY_BEFORE)) for key in node.labels
    ):
        return True
    return all(_zone(node, key) in values for key, values in volume.zones)


def _zone(node: NodeObserved, key: str) -> str | None:
    """The node's value of a zone label, by its present name where it has the former no more."""
    return node.labels.get(key, node.labels.get(key.replace(_TOPOLOGY_BEFORE, _TOPOLOGY)))


def _full(node: str, volumes: Sequence[VolumeObserved], view: ClusterView) -> str:
    """The driver of which the node attaches no more, "" for none. Volumes that several pods share
    count once.
    """
    limited = view.cluster_objects.limits.get(node)
    if limited is None:
        return ""
    texts = view.placed_pods.texts(VOLUMES)
    claims = texts.on(node)
    for driver in sorted({volume.driver for volume in volumes} & limited.limits.keys()):
        wanted, most = (
            {volume.handle for volume in volumes if volume.driver == driver},
            limited.limits[driver],
        )
        if (
            len(claims) + len(wanted) > most
            and len(_attached(node, texts, view).get(driver, set()) | wanted) > most
        ):
            return driver
    return ""


def _attached(node: str, texts: Texts, view: ClusterView) -> dict[str, set[str]]:
    """Driver -> handles on the node; worked out once for as long as its pods and the claims stand
    as they do.
    """
    known = texts.derived.get(node)
    if known is None or known[0] != view.cluster_objects.bindings:
        known = texts.derived[node] = (
            view.cluster_objects.bindings,
            view.cluster_objects.attached(texts.on(node)),
        )
    found: dict[str, set[str]] = known[1]
    return found
