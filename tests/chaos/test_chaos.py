"""The parts of the chaos run that can be tried alone: the proxy, and whether the judge sees what is broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from tests.chaos import judging
from tests.chaos.__main__ import main
from tests.chaos.proxy import Proxy
from tests.road.harness import Road


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """To a server that sends back what it hears."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while heard := await reader.read(100):
            writer.write(heard)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        found = Proxy(server.sockets[0].getsockname()[1])
        await found.start()
        yield found
        await found.stop()


async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What comes back; nothing where the connection is gone."""
    writer.write(b"hello")
    try:
        return await asyncio.wait_for(reader.read(100), 10)
    except ConnectionError:
        return b""


async def test_it_carries_and_cuts(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await said(reader, writer) == b"hello"
    assert proxy.cut() == 1
    assert await said(reader, writer) == b""
    writer.close()


async def test_who_comes_while_it_is_away_is_turned_away_and_later_let_in(proxy: Proxy) -> None:
    proxy.away = True
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await said(reader, writer) == b""
    writer.close()
    proxy.away = False
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await said(reader, writer) == b"hello"
    writer.close()


class Cluster:
    """A road of which only the API server's list is asked."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods

    def kube(self, path: str) -> Any:
        assert path == "/api/v1/pods"
        return {"items": list(self.pods)}


def pod(uid: str, node: str = "", reason: str = "") -> dict[str, Any]:
    return {"metadata": {"name": f"p-{uid}", "uid": uid}, "spec": {"nodeName": node}, "status": {"reason": reason}}


@pytest.mark.parametrize(
    ("seen", "bound", "broken"),
    [
        (pod("a", "n1"), {"a": "n1"}, []),
        (pod("a", "n1"), {}, []),
        (pod("a", "n2"), {"a": "n1"}, ["the log has p-a on n1, the API server on n2"]),
        (pod("a"), {"a": "n1"}, ["the log has p-a on n1, the API server on no node"]),
        (pod("a", "n1", "TopologyAffinityError"), {"a": "n1"}, ["a kubelet refused p-a: TopologyAffinityError"]),
        (pod("a", "n1", "OutOfcpu"), {"a": "n1"}, ["a kubelet refused p-a: OutOfcpu"]),
    ],
)
def test_the_judge_sees_refusals_and_bindings_of_which_the_log_says_otherwise(
    seen: dict[str, Any], bound: dict[str, str], broken: list[str]
) -> None:
    assert judging.of_the_cluster(cast(Road, Cluster(seen)), bound) == broken


def test_a_fault_that_is_not_there_is_told_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["chaos", "--only", "flood"])
    with pytest.raises(SystemExit):
        main()
    assert "kill postgres" in capsys.readouterr().err
