"""Several API servers of one cluster: who does not answer is left for the next; what failed is the caller's to send again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.kube.client import KubeClient
from shared.kube.port import Answer, KubeUnavailableError, Lost
from tests.fixtures.ports import free_port
from tests.kube.test_transport import Server, server

__all__ = ["server"]


@pytest.fixture
async def kube(server: Server) -> AsyncIterator[KubeClient]:
    made = KubeClient(f"http://127.0.0.1:{free_port()}, {server.url}")
    yield made
    await made.close()


async def test_the_next_server_is_asked_and_stays(kube: KubeClient, server: Server) -> None:
    assert isinstance(await kube.get_pod("ns", "p"), Lost)
    assert [isinstance(await kube.get_pod("ns", "p"), Answer) for _ in range(3)] == [True, True, True]


async def test_a_watch_that_cannot_be_had_moves_on_too(kube: KubeClient, server: Server) -> None:
    with pytest.raises(KubeUnavailableError, match="broke"):
        _ = [seen async for seen in kube.watch("pods", "1")]
    assert isinstance(await kube.get_pod("ns", "p"), Answer)


async def test_when_all_are_gone_each_is_asked_in_turn() -> None:
    ports = [free_port(), free_port()]
    kube = KubeClient(",".join(f"http://127.0.0.1:{port}" for port in ports))
    named = []
    for _ in range(4):
        with pytest.raises(KubeUnavailableError) as failed:
            await kube.list("pods")
        named.append(next(port for port in ports if str(port) in str(failed.value)))
    await kube.close()
    assert sorted(named) == sorted([*ports, *ports])
