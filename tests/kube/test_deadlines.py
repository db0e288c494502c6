"""Lists and watches end on the client if the server sends bytes and no answer.

The servers are real HTTP servers. httpx's read timeout starts again with each byte, so a server
that sent one blank every 2 s kept a scheduler ready that did not see any pod.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import msgspec
import pytest

from shared.kube import client
from shared.kube.client import KubeClient
from shared.kube.connection import Connection
from shared.kube.port import Answer, KubeUnavailableError, Lost
from shared.kube.transport import Request
from tests.kube.test_initial_events import event, mark

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVERY_S = 0.02


class DribblingServer:
    """A server that answers each request with `begin` at once, then with `piece` every 20 ms."""

    def __init__(self) -> None:
        self.begin = CHUNKED
        self.piece = b"1\r\n \r\n"
        self.requests: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.begin)
            while True:
                await asyncio.sleep(EVERY_S)
                writer.write(self.piece)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[DribblingServer]:
    slow_server = DribblingServer()
    listening = await asyncio.start_server(slow_server.serve, "127.0.0.1", 0)
    slow_server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield slow_server
    listening.close()


@pytest.fixture
async def kube(
    server: DribblingServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubeClient]:
    monkeypatch.setattr(client, "CALL_TIMEOUT_S", 0.2)
    monkeypatch.setattr(client, "WATCH_TIMEOUT_S", 0)
    monkeypatch.setattr(client, "INITIAL_IDLE_S", 0.2)
    monkeypatch.setattr(client, "INITIAL_TIMEOUT_S", 300)
    kube_client = KubeClient(server.url)
    yield kube_client
    await kube_client.close()


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def line(decoded: object) -> bytes:
    return chunk(msgspec.json.encode(decoded) + b"\n")


async def streamed_list(kube: KubeClient) -> None:
    _ = [part async for part in kube.pages("pods", streamed=True)]


async def paged_list(kube: KubeClient) -> None:
    _ = [part async for part in kube.pages("pods")]


async def watch(kube: KubeClient) -> None:
    _ = [event async for event in kube.watch("pods", "1")]


PIECES = {
    "blanks": b"1\r\n \r\n",
    "empty lines": b"1\r\n\n\r\n",
    "a line that never ends": b"1\r\n[\r\n",
}


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES.keys())
@pytest.mark.parametrize("read", [streamed_list, paged_list, watch])
async def test_bytes_without_an_event_are_no_progress(
    server: DribblingServer,
    kube: KubeClient,
    read: Callable[[KubeClient], Awaitable[None]],
    piece: bytes,
) -> None:
    server.piece = piece
    async with asyncio.timeout(3):
        with pytest.raises(KubeUnavailableError, match=r"no answer in time|no event within"):
            await read(kube)


@pytest.mark.parametrize("read", [streamed_list, paged_list, watch])
async def test_headers_that_never_end_are_no_answer(
    server: DribblingServer, kube: KubeClient, read: Callable[[KubeClient], Awaitable[None]]
) -> None:
    server.begin, server.piece = b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n"
    async with asyncio.timeout(3):
        with pytest.raises(KubeUnavailableError):
            await read(kube)


@pytest.mark.parametrize("read", [streamed_list, watch])
async def test_events_without_an_end_end_by_the_deadline_of_the_request(
    server: DribblingServer,
    kube: KubeClient,
    read: Callable[[KubeClient], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "INITIAL_TIMEOUT_S", 0)
    server.piece = line(event("ADDED", "a"))
    async with asyncio.timeout(3):
        with pytest.raises(KubeUnavailableError):
            await read(kube)


async def test_events_are_progress(
    server: DribblingServer, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large list takes longer than the time that may pass between two of its events."""
    monkeypatch.setattr(client, "INITIAL_IDLE_S", 0.5)
    monkeypatch.setattr(client, "PAGE_LIMIT", 1)
    server.piece = line(event("ADDED", "a"))
    began_s, seen = time.monotonic(), 0
    async for _part in kube.pages("pods", streamed=True):
        seen += 1
        if time.monotonic() - began_s > 1.0:
            break
    assert seen > 10


async def test_the_pauses_of_the_reader_do_not_end_a_stream(
    server: DribblingServer, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow log slows the list down and does not break it."""
    monkeypatch.setattr(client, "PAGE_LIMIT", 1)
    server.begin = CHUNKED + line(event("ADDED", "a")) + line(event("ADDED", "b")) + line(mark())
    names = []
    async for part in kube.pages("pods", streamed=True):
        names += [item["metadata"]["name"] for item in part.items]
        await asyncio.sleep(0.3)
    assert names == ["a", "b"]


async def test_a_dribbled_answer_to_a_call_is_a_lost_answer(
    server: DribblingServer, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(3):
        assert isinstance(await kube.get_pod("ns", "p"), Lost)


async def test_a_call_through_a_proxy_has_a_deadline_too(
    server: DribblingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    connection = Connection("http://kubernetes.invalid", 1)
    async with asyncio.timeout(3):
        with pytest.raises(httpx2.ReadTimeout):
            await connection.call(Request("GET", "/api", None, {}, None, 0.2))
    await connection.close()


async def test_a_list_of_pages_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    body = msgspec.json.encode(
        {"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": "more"}, "items": []}
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(EVERY_S)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    monkeypatch.setattr(client, "LIST_TIMEOUT_S", 0.3)
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    kube = KubeClient(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    async with asyncio.timeout(3):
        with pytest.raises(KubeUnavailableError, match="has not ended after"):
            await paged_list(kube)
    await kube.close()
    listening.close()


async def test_a_watch_that_ends_at_once_is_not_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    monkeypatch.setattr(client, "SHORT_WATCH_S", 0.3)
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    kube = KubeClient(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    began_s = time.monotonic()
    await watch(kube)
    assert time.monotonic() - began_s >= 0.3
    await kube.close()
    listening.close()


@pytest.mark.parametrize(("header", "waits_s"), [(b"3", 3.0), (b"100000", 10.0), (b"soon", 0.0)])
async def test_a_retry_after_is_capped(header: bytes, waits_s: float) -> None:
    """A server once answered Retry-After: 300, so a pod was bound 280 s after the server had
    recovered."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 429 Busy\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n" % header)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    kube = KubeClient(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    answer = await kube.get_pod("ns", "p")
    assert isinstance(answer, Answer)
    assert answer.retry_after_s == waits_s
    await kube.close()
    listening.close()
