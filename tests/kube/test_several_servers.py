"""Several API servers of one cluster: if one does not answer, the next is used, and the caller
repeats the failed request."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.kube import client, connection
from shared.kube.client import KubeClient
from shared.kube.port import Answer, KubeUnavailableError, Lost
from tests.fixtures.ports import free_port
from tests.kube.test_transport import Server, server

__all__ = ["server"]


@pytest.fixture
async def kube(server: Server) -> AsyncIterator[KubeClient]:
    kube_client = KubeClient(f"http://127.0.0.1:{free_port()}, {server.url}")
    yield kube_client
    await kube_client.close()


async def test_the_next_server_is_asked_and_stays(kube: KubeClient, server: Server) -> None:
    assert isinstance(await kube.get_pod("ns", "p"), Lost)
    assert [isinstance(await kube.get_pod("ns", "p"), Answer) for _ in range(3)] == [
        True,
        True,
        True,
    ]


async def test_a_watch_that_cannot_be_had_moves_on_too(kube: KubeClient, server: Server) -> None:
    with pytest.raises(KubeUnavailableError, match="broke"):
        _ = [seen async for seen in kube.watch("pods", "1")]
    assert isinstance(await kube.get_pod("ns", "p"), Answer)


async def test_a_watch_of_a_hanging_server_is_given_up_and_the_next_server_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """client-go gives up after 45 s. This client once needed 310 s, and new pods waited although
    another server worked.
    """
    assert client.WATCH_TIMEOUT_S + connection.CALL_TIMEOUT_S <= 45
    monkeypatch.setattr(client, "WATCH_TIMEOUT_S", 0)
    monkeypatch.setattr(client, "CALL_TIMEOUT_S", 0.1)
    server.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"]
    kube = KubeClient(f"{server.url}, http://127.0.0.1:{free_port()}")
    with pytest.raises(KubeUnavailableError, match="broke: no answer in time"):
        _ = [seen async for seen in kube.watch("pods", "1")]
    assert isinstance(await kube.get_pod("ns", "p"), Lost)
    await kube.close()
    assert len(server.requests) == 1


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
