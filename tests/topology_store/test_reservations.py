"""The status of Reservation objects, written to the simulated API server from the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.simulator.api.core.store import Entry
from services.topology_store.reservations import Reservations
from shared.events import streams
from shared.events.cluster_events import NodeEnded
from shared.events.scheduling_events import BookingEnded
from shared.kube.client import KubeClient
from shared.runtime.clock import SYSTEM_CLOCK
from tests.kube.test_reservation_objects import Observed, reservation
from tests.scheduler.owned.test_bookings import web
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api

TYPE = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation"}
OWNER = {"namespace": "ns", "name": "a", "uid": "uid-a"}


class Scene(Observed):
    """A Reservation in the API and in a scheduler's log, and a writer of its status."""

    def __init__(self, api: Api, **spec: Any) -> None:  # noqa: F811, RUF100
        super().__init__()
        self.api, self.kube = api, KubeClient(api.server.url)
        self.writer = Reservations(self.kube, SYSTEM_CLOCK, lambda: self.core.ledger)
        made = api.store.create(
            "reservations", {**reservation(**spec), **TYPE, "metadata": {"name": "room"}}
        )
        assert isinstance(made, Entry), made
        self.uid = made.obj["metadata"]["uid"]
        self.see(made.obj)

    async def status(self) -> dict[str, Any]:
        await self.writer.sweep()
        entry = self.api.store.get("reservations", "room")
        assert entry is not None
        return dict(entry.obj["status"])


@pytest.fixture
async def scene(api: Api) -> AsyncIterator[Scene]:  # noqa: F811, RUF100
    made = Scene(api, allocateOnce=False)
    yield made
    await made.kube.close()


def ready(status: dict[str, Any]) -> tuple[str, str]:
    (condition,) = [each for each in status["conditions"] if each["type"] == "Ready"]
    return condition["status"], condition["reason"]


async def test_a_status_from_waiting_to_its_owners_and_its_end(scene: Scene) -> None:
    status = await scene.status()
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Pending", "Unschedulable")
    assert "nodeName" not in status
    scene.node(labels={"pool": "a"})
    scene.turn()
    status = await scene.status()
    assert (status["phase"], status["nodeName"]) == ("Available", "n1")
    assert (status["allocatable"], ready(status)) == (
        {"cpu": "8", "memory": "8Gi"},
        ("True", "Available"),
    )
    scene.place(web("a", 4))
    status = await scene.status()
    assert (status["currentOwners"], status["allocated"]) == (
        [OWNER],
        {"cpu": "4", "memory": "1Gi"},
    )
    scene.end("a")
    status = await scene.status()
    assert (status["currentOwners"], "allocated" in status) == ([], False)
    scene.tell(streams.node("n1"), NodeEnded("n1", "uid-n1", "deleted"))
    scene.turn()
    status = await scene.status()
    assert (status["phase"], "nodeName" in status, "allocatable" in status) == (
        "Pending",
        False,
        False,
    )
    scene.tell(streams.pod(scene.uid), BookingEnded(scene.uid, "expired"))
    status = await scene.status()
    assert (status["phase"], ready(status)) == ("Failed", ("False", "Expired"))


async def test_a_reservation_for_one_pod_succeeds_with_it_and_its_entry_ends(api: Api) -> None:  # noqa: F811, RUF100
    scene = Scene(api)
    scene.node(labels={"pool": "a"})
    scene.turn()
    scene.place(web("a", 4))
    status = await scene.status()
    assert (status["phase"], status["nodeName"], ready(status)) == (
        "Succeeded",
        "n1",
        ("False", "Succeeded"),
    )
    assert status["currentOwners"] == [OWNER]
    entry = api.store.get("reservations", "room")
    assert entry is not None
    (end,) = scene.see(entry.obj, "MODIFIED")
    assert isinstance(end, BookingEnded)
    assert scene.uid not in scene.core.ledger.pods
    await scene.kube.close()


async def test_a_status_is_written_once(scene: Scene) -> None:
    await scene.status()
    entry = scene.api.store.get("reservations", "room")
    await scene.status()
    assert scene.api.store.get("reservations", "room") == entry
