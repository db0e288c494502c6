"""An OverReserve cache with the API and the pod lister around it, for telling the stories of its
defects.
"""

from __future__ import annotations

from plugins.upstream_compat.foreign import Detection, Profiles
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.overreserve import Desynced, OverReserve, Settings
from plugins.upstream_compat.pod import Pod
from shared.domain.quantity import NANO

KNOWN = "topo"


class Upstream:
    """One profile's cache on the objects that the API held when the scheduler started."""

    def __init__(
        self, *nrts: Nrt, detection: Detection = "None", profiles: Profiles | None = None
    ) -> None:
        self.api = {nrt.name: nrt for nrt in nrts}
        self.lister: list[Pod] = []
        settings = Settings(detect_foreign=detection != "None")
        self.cache = OverReserve(nrts, profiles or Profiles([KNOWN], detection), settings)

    def published(self, nrt: Nrt, event: str = "MODIFIED") -> None:
        """Write the exporter's object, which the attribute watcher sees."""
        self.api[nrt.name] = nrt
        self.cache.nrt_event(event, nrt)

    def resync(self, node: str = "n1") -> None:
        """Refuse a pod on the node once, and run the next resync."""
        self.cache.node_maybe_overreserved(node)
        self.cache.resync(self.api.get, self.lister)

    def before_flush(self, node: str = "n1") -> list[Nrt]:
        """Run the first two steps of a resync. Return the objects that it would flush."""
        self.cache.node_maybe_overreserved(node)
        return self.cache.updates(self.cache.desynced(), self.api.get, self.lister)

    @property
    def dirty(self) -> Desynced:
        return self.cache.desynced()

    def free(self, zone: int = 0, node: str = "n1", resource: str = "cpu") -> int | None:
        """Return the free whole units of the zone at this position, None if the node has no
        topology."""
        nrt = self.cache.view(node, self.api.get).nrt
        if nrt is None:
            return None
        return next(
            each.available.nano // NANO
            for each in nrt.zones[zone].resources
            if each.name == resource
        )
