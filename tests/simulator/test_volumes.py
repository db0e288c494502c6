"""Volume claims of the simulated cluster are bound to the volumes that they name."""

from __future__ import annotations

from typing import Any

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.volumes import VolumeBinder
from tests.runtime.helpers import running, until


def phase(store: ClusterStore, kind: str, name: str, namespace: str = "") -> Any:
    entry = store.get(kind, name, namespace)
    return entry.obj["status"]["phase"] if entry is not None else None


def claim(store: ClusterStore, name: str, volume: str = "") -> None:
    spec = {"accessModes": ["ReadWriteOnce"], **({"volumeName": volume} if volume else {})}
    store.create("persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec}, "default")


async def test_only_the_claim_that_names_a_volume_is_bound_to_it_in_either_order() -> None:
    store = ClusterStore()
    claim(store, "first", "v")
    async with running(VolumeBinder(store).run()):
        claim(store, "none")
        store.create(
            "persistentvolumes",
            {"metadata": {"name": "v"}, "spec": {"csi": {"driver": "d", "volumeHandle": "h"}}},
        )
        await until(lambda: phase(store, "persistentvolumeclaims", "first", "default") == "Bound")
        claim(store, "second", "v")
        claim(store, "third", "w")
        store.create("persistentvolumes", {"metadata": {"name": "w"}, "spec": {}})
        await until(lambda: phase(store, "persistentvolumeclaims", "third", "default") == "Bound")
    assert phase(store, "persistentvolumes", "v") == "Bound"
    volume = store.get("persistentvolumes", "v")
    assert volume is not None
    assert volume.obj["spec"]["claimRef"]["name"] == "first"
    assert [
        phase(store, "persistentvolumeclaims", name, "default") for name in ("second", "none")
    ] == ["Pending", "Pending"]
