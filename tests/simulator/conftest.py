"""A simulated API server on a free port, with the recorder's namespace and nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.serve import start
from services.simulator.api.settings import ApiSettings
from tests.simulator.contract import Api


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Yield an empty cluster with namespace apirec and short waits."""
    store = ClusterStore(ApiSettings(future_version_wait_s=0.05, bookmark_interval_s=0.3))
    store.create("namespaces", {"metadata": {"name": "apirec"}})
    server = await start(store)
    async with httpx2.AsyncClient(base_url=server.url, timeout=20) as client:
        yield Api(store, server, client)
    await server.stop()
