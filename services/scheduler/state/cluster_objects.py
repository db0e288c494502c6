"""What surrounds pods and nodes, as constraints ask for it: claims and their volumes, limits of
nodes, labels of namespaces, nominations of other schedulers, classes of devices that name a
resource.

Folded from the log beside the ledger, by name. At 150,000 bound claims it takes some 100 MB;
volumes that are reached from the same nodes share their terms. Must not know pods, a clock or the
log."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from shared.domain.pod import NodeSelectorTerm
from shared.events.binding_events import PodBound
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from shared.events.scheduling_events import PodReserved
from shared.events.surroundings_events import (
    ClaimObserved,
    DeviceClassObserved,
    NamespaceObserved,
    NodeVolumesLimited,
    NominationObserved,
    Surrounding,
    SurroundingEvent,
    VolumeObserved,
    stream_of,
)

VOLUMES = "volumes"
"""What the constraint of volumes keeps of a pod: the names of its claims."""
PodEvent = PodObserved | PodReserved | PodBound | PodRunning | PodEnded
Terms = tuple[NodeSelectorTerm, ...]
SHARED_TERMS = 8192
"""Distinct affinities of volumes that are kept once: zones, and the nodes of local volumes."""


class ClusterObjects(msgspec.Struct):
    """The fold. Claims and namespaces by name (`namespace/name` for claims), volumes by name,
    limits by node, nominations by the uid of their pod, classes by name. `bindings` counts what was
    heard of claims and volumes."""

    volumes: dict[str, VolumeObserved] = {}
    claims: dict[str, ClaimObserved] = {}
    namespaces: dict[str, NamespaceObserved] = {}
    limits: dict[str, NodeVolumesLimited] = {}
    nominations: dict[str, NominationObserved] = {}
    classes: dict[str, DeviceClassObserved] = {}
    bindings: int = 0

    def hear(self, event: SurroundingEvent) -> None:
        """Fold one fact; the end of something unknown is harmless."""
        self.bindings += stream_of(event).startswith(("claim/", "volume/"))
        if isinstance(event, VolumeObserved):
            self.volumes[event.name] = (
                msgspec.structs.replace(event, terms=_shared(event.terms)) if event.terms else event
            )
        elif isinstance(event, ClaimObserved):
            self.claims[event.name] = event
        elif isinstance(event, NamespaceObserved):
            self.namespaces[event.name] = event
        elif isinstance(event, NodeVolumesLimited):
            self.limits[event.node] = event
        elif isinstance(event, NominationObserved):
            self.nominations[event.pod_uid] = event
        elif isinstance(event, DeviceClassObserved):
            self.classes[event.name] = event
        else:
            self.of_kind(event.kind).pop(event.name, None)

    def hear_pod(self, event: PodEvent) -> None:
        """Who stands on a node, or ended, needs no room kept: of a pod that Topolog reserves when
        kube-scheduler asks nobody sees the binding. It may be nominated until then, since 1.35 also
        where nobody is evicted, and be seen so only afterwards."""
        if self.nominations and ends_nomination(event):
            self.nominations.pop(event.about.pod, None)

    def of_kind(self, kind: Surrounding) -> dict[str, Any]:
        """All that is known of one kind, by name."""
        kinds: dict[Surrounding, dict[str, Any]] = {
            "volume": self.volumes,
            "claim": self.claims,
            "namespace": self.namespaces,
            "csinode": self.limits,
            "nomination": self.nominations,
            "deviceclass": self.classes,
        }
        return kinds[kind]

    def volume_of(self, claim: str) -> VolumeObserved | None:
        """The volume that the claim is bound to; None while either is not known."""
        known = self.claims.get(claim)
        return self.volumes.get(known.volume) if known is not None else None

    def attached(self, claims: Iterable[str]) -> dict[str, set[str]]:
        """Driver -> handles of the volumes that these claims are bound to."""
        found: dict[str, set[str]] = {}
        for claim in claims:
            volume = self.volume_of(claim)
            if volume is not None:
                found.setdefault(volume.driver, set()).add(volume.handle)
        return found


def ends_nomination(event: PodEvent) -> bool:
    """All but the sight of a pod that has no node yet."""
    return not isinstance(event, PodObserved) or bool(event.node)


@lru_cache(maxsize=SHARED_TERMS)
def _shared(terms: Terms) -> Terms:
    """Equal terms are one object."""
    return terms
