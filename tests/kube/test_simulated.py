"""The contract of the Kubernetes port against the simulated API over HTTP, and what only a
simulated server can be made to do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.serve import start
from services.simulator.api.settings import ApiSettings
from shared.kube.client import KubeClient
from shared.kube.port import WatchExpiredError
from tests.kube.contract import *  # noqa: F403 - the contract
from tests.kube.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    store = ClusterStore(
        ApiSettings(future_version_wait_s=0.05, bookmark_interval_s=0.3, history_limit=8)
    )
    server = await start(store)
    made = await World(KubeClient(server.url)).open()
    yield made
    await made.close()
    await server.stop()


async def test_a_version_that_the_server_has_forgotten_is_expired(world: World) -> None:
    first = await world.kube.list("pods")
    for number in range(12):
        await world.pod(f"p{number}")
    with pytest.raises(WatchExpiredError):
        await world.see("pods", first.resource_version, 1)
