"""Binds volume claims that name their volume, as the persistent volume controller does.

A claim without a volume name, or with the volume of another claim, stays Pending: nothing is
provisioned. This module does not know HTTP, kubelets or schedulers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.simulator.cluster_port import Change, ClusterPort, Json

VOLUMES, CLAIMS = "persistentvolumes", "persistentvolumeclaims"
PAUSE_S = 0.05


class VolumeBinder:
    """Binds claims when volumes or claims change."""

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self._woken = asyncio.Event()
        self._stops: list[Callable[[], None]] = []

    async def run(self) -> None:
        """Work until cancelled."""
        self._stops = [self._cluster.listen(kind, self._on_change) for kind in (VOLUMES, CLAIMS)]
        self._woken.set()
        try:
            while True:
                await self._woken.wait()
                await asyncio.sleep(PAUSE_S)
                self._woken.clear()
                for claim in self._cluster.list(CLAIMS):
                    self._bind(claim.obj)
        finally:
            for stop in self._stops:
                stop()

    def _on_change(self, _change: Change) -> None:
        self._woken.set()

    def _bind(self, claim: Json) -> None:
        metadata, name = claim["metadata"], str(claim["spec"].get("volumeName") or "")
        volume = self._cluster.get(VOLUMES, name) if name else None
        if volume is None:
            return
        claim_key, bound_to = (
            {"namespace": metadata["namespace"], "name": metadata["name"]},
            volume.obj["spec"].get("claimRef"),
        )
        if bound_to and (
            claim["status"].get("phase") == "Bound"
            or {key: bound_to.get(key) for key in claim_key} != claim_key
        ):
            return
        reference = {"kind": "PersistentVolumeClaim", **claim_key, "uid": metadata["uid"]}
        self._cluster.patch(VOLUMES, name, "", {"spec": {"claimRef": reference}}, form="merge")
        self._cluster.replace_status(VOLUMES, name, "", {"phase": "Bound"})
        self._cluster.replace_status(
            CLAIMS, metadata["name"], metadata["namespace"], {"phase": "Bound"}
        )
