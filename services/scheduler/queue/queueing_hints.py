"""Which waiting pods a change of volumes, claims, limits or namespaces may help. Must not know the
queue.
"""

from __future__ import annotations

from services.scheduler.state.cluster_objects import VOLUMES, ClusterObjects
from shared.domain.pod import Pod
from shared.events.surroundings_events import SurroundingEvent, stream_of


class ClusterChanges:
    """What changed since the last look."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def hear(self, event: SurroundingEvent) -> None:
        """One change."""
        kind, _, name = stream_of(event).partition("/")
        self._names.setdefault(kind, set()).add(name)

    def concerns(self, pod: Pod, around: ClusterObjects) -> bool:
        """A namespace may concern everybody, since the rules of running pods look at those of
        newcomers; so may a nomination.
        """
        if self._names.keys() & {"namespace", "nomination"}:
            return True
        claims: list[str] = pod.constraints.kept.get(VOLUMES) or []
        if claims and "csinode" in self._names:
            return True
        told, volumes = self._names.get("claim", ()), self._names.get("volume", ())
        return any(claim in told or _volume(around, claim) in volumes for claim in claims)

    def clear(self) -> None:
        """Whoever was concerned was woken."""
        self._names.clear()


def _volume(around: ClusterObjects, claim: str) -> str:
    known = around.claims.get(claim)
    return known.volume if known is not None else ""
