"""Cluster objects that constraints need: claims and their volumes, volume limits of nodes, labels
of namespaces, nominations of other schedulers, device classes that name a resource, PodGroups.

They are folded from the log in addition to the ledger, by name. 150,000 bound claims take about 100
MB; volumes with equal node affinity share it. Must not know pods, a clock or the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from shared.domain.gang import APIS, Gang, PodGroupApi
from shared.domain.pod import NodeSelectorTerm
from shared.events.binding_events import PodBound
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from shared.events.scheduling_events import PodReserved
from shared.events.surroundings_events import (
    ClaimObserved,
    DeviceClassObserved,
    NamespaceObserved,
    NodeDevicesObserved,
    NodeVolumesLimited,
    NominationObserved,
    PodGroupObserved,
    Surrounding,
    SurroundingEnded,
    SurroundingEvent,
    VolumeObserved,
    stream_of,
)
from shared.ledger.state import Ledger

# The data that the constraint of volumes keeps of a pod: the names of its claims.
VOLUMES = "volumes"
PodEvent = PodObserved | PodReserved | PodBound | PodRunning | PodEnded
Terms = tuple[NodeSelectorTerm, ...]
# The most distinct affinities of volumes that are shared: zones, and the nodes of local volumes.
SHARED_TERMS = 8192


class ClusterObjects(msgspec.Struct):
    """The fold: claims by `namespace/name`, nominations by pod uid, limits by node, others by name.
    `bindings` counts events of claims and volumes, `limit_changes` events of CSINodes."""

    volumes: dict[str, VolumeObserved] = {}
    claims: dict[str, ClaimObserved] = {}
    namespaces: dict[str, NamespaceObserved] = {}
    limits: dict[str, NodeVolumesLimited] = {}
    nominations: dict[str, NominationObserved] = {}
    classes: dict[str, DeviceClassObserved] = {}
    pod_groups: dict[PodGroupApi, dict[str, PodGroupObserved]] = {}
    bindings: int = 0
    limit_changes: int = 0

    def fold(self, event: SurroundingEvent) -> None:
        """Fold one event; the end of an unknown object is harmless."""
        stream = stream_of(event)
        self.bindings += stream.startswith(("claim/", "volume/"))
        self.limit_changes += stream.startswith("csinode/")
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
        elif isinstance(event, PodGroupObserved):
            self.pod_groups.setdefault(event.api, {})[event.name] = event
        elif isinstance(event, SurroundingEnded) and event.kind != "devices":
            self.of_kind(event.kind).pop(event.name, None)

    def fold_pod(self, event: PodEvent) -> None:
        """End the nomination of a pod that has a node or ended. The observer does not report the
        binding of a pod that Topolog reserves for kube-scheduler. Such a pod may be nominated
        before (since 1.35 also without evictions), and be observed as nominated only after its
        binding."""
        if self.nominations and ends_nomination(event):
            self.nominations.pop(event.about.pod, None)

    def of_kind(self, kind: Surrounding) -> dict[str, Any]:
        """Return the objects of one kind, by name."""
        kinds: dict[Surrounding, dict[str, Any]] = {
            "volume": self.volumes,
            "claim": self.claims,
            "namespace": self.namespaces,
            "csinode": self.limits,
            "nomination": self.nominations,
            "deviceclass": self.classes,
        }
        return kinds[kind] if kind in kinds else self.pod_groups.get(kind, {})  # type: ignore[arg-type]

    def volume_of(self, claim: str) -> VolumeObserved | None:
        """Return the volume that the claim is bound to; None while either is unknown."""
        observed = self.claims.get(claim)
        return self.volumes.get(observed.volume) if observed is not None else None

    def complete(self, gang: Gang) -> Gang | str:
        """Return the gang with its minimum and rules, or why these are not known."""
        if gang.minimum:
            return f"it has {gang.rules.problem}" if gang.rules.problem else gang
        observed = self.pod_groups.get(gang.api, {}).get(gang.name) if gang.api else None
        if observed is None:
            group = APIS[gang.api] if gang.api else ""
            return f"its PodGroup {gang.name} ({group}) does not exist"
        if observed.problem:
            return f"its PodGroup has {observed.problem}, which Topolog does not keep"
        return msgspec.structs.replace(gang, minimum=observed.minimum, rules=observed.rules)

    def attached(self, claims: Iterable[str]) -> dict[str, set[str]]:
        """Return driver -> handles of the volumes that these claims are bound to."""
        handles: dict[str, set[str]] = {}
        for claim in claims:
            volume = self.volume_of(claim)
            if volume is not None:
                handles.setdefault(volume.driver, set()).add(volume.handle)
        return handles


class LedgerDevices(Mapping[str, NodeDevicesObserved]):
    """The Device objects by node, which the ledger's nodes hold."""

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes

    def __getitem__(self, name: str) -> NodeDevicesObserved:
        devices = self._nodes[name].devices
        if devices is None:
            raise KeyError(name)
        return devices

    def __iter__(self) -> Iterator[str]:
        return (name for name, node in self._nodes.items() if node.devices is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def ends_nomination(event: PodEvent) -> bool:
    """Return whether the pod has a node or has ended."""
    return not isinstance(event, PodObserved) or bool(event.node)


@lru_cache(maxsize=SHARED_TERMS)
def _shared(terms: Terms) -> Terms:
    """Equal terms are one object."""
    return terms
