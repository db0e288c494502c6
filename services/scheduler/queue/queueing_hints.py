"""Queueing hints for cluster objects: which waiting pods a change of volumes, claims, limits or
namespaces may help. Hints for nodes are `Placing.waiting_could_fit`. Must not know the queue.
"""

from __future__ import annotations

from services.scheduler.state.cluster_objects import ClusterObjects
from shared.domain.pod import Pod
from shared.events.surroundings_events import SurroundingEvent, stream_of

# The key under which the volumes constraint keeps a pod's claims.
VOLUMES = "volumes"


class ClusterChanges:
    """Cluster objects that changed since the last look, by kind."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def note(self, event: SurroundingEvent) -> None:
        """Note one change."""
        kind, _, name = stream_of(event).partition("/")
        self._names.setdefault(kind, set()).add(name)

    def concerns(self, pod: Pod, cluster_objects: ClusterObjects) -> bool:
        """Return whether the change may help the pod. A namespace may concern every pod, because
        rules of running pods select new pods by the labels of their namespace; so may a nomination.
        """
        if self._names.keys() & {"namespace", "nomination"}:
            return True
        claims: list[str] = pod.constraints.kept.get(VOLUMES) or []
        if claims and "csinode" in self._names:
            return True
        changed_claims = self._names.get("claim", set())
        changed_volumes = self._names.get("volume", set())
        for name in claims:
            claim = cluster_objects.claims.get(name)
            if name in changed_claims or (claim is not None and claim.volume in changed_volumes):
                return True
        return False
