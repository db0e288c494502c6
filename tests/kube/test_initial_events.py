"""Lists as streams: whole by their mark or no list at all; servers that refuse, ignore, cut or fall
silent get pages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from shared.kube import client
from shared.kube.client import KubeClient
from shared.kube.initial_events import END, InitialEvents
from shared.kube.port import KubeUnavailableError, Listed, WatchEvent
from tests.kube.test_transport import Server, server  # noqa: F401 - fixture

PAGE: dict[str, Any] = {
    "kind": "PodList",
    "metadata": {"resourceVersion": "9"},
    "items": [{"metadata": {"name": "p", "uid": "u"}}],
}


@pytest.fixture
async def kube(server: Server) -> AsyncIterator[KubeClient]:  # noqa: F811, RUF100
    kube_client = KubeClient(server.url)
    yield kube_client
    await kube_client.close()


def event(kind: str, name: str, uid: str = "", version: str = "1") -> dict[str, Any]:
    return {
        "type": kind,
        "object": {
            "metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": version}
        },
    }


def mark(version: str = "7", value: str = "true", key: str = END) -> dict[str, Any]:
    metadata = {"resourceVersion": version, "annotations": {key: value}}
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": metadata}}


def stream(*events: dict[str, Any], more: bool = False) -> bytes:
    body = b"".join(msgspec.json.encode(decoded) + b"\n" for decoded in events)
    if more:  # The response is chunked and never ends, so the connection stays open.
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (
            len(body),
            body,
        )
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


def answer(status: str, body: Any) -> bytes:
    content = msgspec.json.encode(body)
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(content), content)


async def parts(kube: KubeClient) -> list[Listed]:
    return [part async for part in kube.pages("pods", streamed=True)]


async def test_a_stream_comes_in_parts_and_the_last_has_the_version(
    server: Server,  # noqa: F811, RUF100
    kube: KubeClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "PAGE_LIMIT", 2)
    server.answers = [
        stream(
            *(event("ADDED", name) for name in "abc"),
            event("DELETED", "a"),
            mark("7"),
            event("ADDED", "later"),
        )
    ]
    listed_parts = await parts(kube)
    assert [[item["metadata"]["name"] for item in part.items] for part in listed_parts] == [
        ["a", "b"],
        ["c"],
        [],
    ]
    assert [[item["metadata"]["name"] for item in part.gone] for part in listed_parts] == [
        [],
        ["a"],
        [],
    ]
    assert [part.resource_version for part in listed_parts] == ["", "", "7"]
    asked = server.requests[0].split(b" ")[1]
    for wanted in (
        b"sendInitialEvents=true",
        b"resourceVersionMatch=NotOlderThan",
        b"allowWatchBookmarks=true",
        b"watch=true",
    ):
        assert wanted in asked
    assert b"resourceVersion=" not in asked.replace(b"resourceVersionMatch=", b"")


async def test_an_object_that_came_again_under_its_name_is_another() -> None:
    gathered = InitialEvents("pods")
    for decoded in (
        event("ADDED", "a", "1"),
        event("DELETED", "a", "1"),
        event("ADDED", "a", "2"),
        event("MODIFIED", "a", "2", "3"),
    ):
        gathered.add(WatchEvent(decoded["type"], decoded["object"]))
    part = gathered.take()
    assert [item["metadata"]["resourceVersion"] for item in part.items] == ["3"]
    assert [item["metadata"]["uid"] for item in part.gone] == ["1"]
    assert len(gathered) == 0


@pytest.mark.parametrize(
    "refused",
    ["422 Unprocessable Entity", "400 Bad Request", "403 Forbidden", "500 Internal Server Error"],
)
async def test_a_server_that_refuses_is_listed_in_pages(
    server: Server, kube: KubeClient, refused: str
) -> None:
    for_good = refused[:3] in ("422", "400")
    server.answers = [answer(refused, {"kind": "Status"}), answer("200 OK", PAGE)] * (
        1 if for_good else 2
    )
    assert [part.resource_version for part in await parts(kube)] == ["9"]
    await parts(kube)
    assert sum(b"sendInitialEvents" in request for request in server.requests) == (
        1 if for_good else 2
    )


def failed(message: str) -> dict[str, Any]:
    return {
        "type": "ERROR",
        "object": {
            "kind": "Status",
            "status": "Failure",
            "reason": "InternalError",
            "code": 500,
            "message": message,
        },
    }


async def test_a_server_that_begins_and_then_says_that_it_cannot_is_listed_in_pages(
    server: Server, kube: KubeClient
) -> None:
    """A kube-apiserver 1.36 with etcd 3.4.23 answers 200 and then this."""
    error_event = failed(
        "a watch stream was requested by the client but the required storage feature "
        "RequestWatchProgress is disabled"
    )
    server.answers = [stream(error_event), answer("200 OK", PAGE)]
    assert [part.resource_version for part in await parts(kube)] == ["9"]
    assert [part.resource_version for part in await parts(kube)] == ["9"], (
        "also the next time, without asking"
    )


async def test_a_stream_that_fails_after_a_part_is_no_list(
    server: Server,  # noqa: F811, RUF100
    kube: KubeClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "PAGE_LIMIT", 1)
    server.answers = [
        stream(event("ADDED", "a"), event("ADDED", "b"), failed("etcdserver: leader changed"))
    ]
    with pytest.raises(KubeUnavailableError, match="leader changed"):
        await parts(kube)


@pytest.mark.parametrize(
    "cut",
    [
        stream(event("ADDED", "a")),
        stream(event("ADDED", "a"), mark(value="false")),
        stream(event("ADDED", "a"), mark(key="other")),
        stream(event("ADDED", "a"), mark(version="")),
        stream(),
        stream(event("ADDED", "a")).replace(b"Content-Length: ", b"Content-Length: 9"),
        stream({"type": "ERROR", "object": {"code": 410}}),
    ],
    ids=["cut", "not true", "without the mark", "without a version", "empty", "reset", "expired"],
)
async def test_a_stream_without_its_mark_is_no_list_and_pages_follow(
    server: Server, kube: KubeClient, cut: bytes
) -> None:
    server.answers = [cut, answer("200 OK", PAGE)]
    with pytest.raises(KubeUnavailableError):
        await parts(kube)
    assert [part.resource_version for part in await parts(kube)] == ["9"]


async def test_a_list_as_a_stream_is_not_cut_off_as_a_watch_is(
    server: Server, kube: KubeClient
) -> None:
    """A list of a large cluster takes longer than a watch."""
    server.answers = [stream(mark())]
    await parts(kube)
    _ = [seen async for seen in kube.watch("pods", "1")]
    listed, watched = (
        int(request.split(b"timeoutSeconds=")[1].split()[0].split(b"&")[0])
        for request in server.requests
    )
    assert listed > watched


async def test_a_server_that_ignores_what_was_asked_and_falls_silent_is_listed_in_pages(
    server: Server,  # noqa: F811, RUF100
    kube: KubeClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "INITIAL_IDLE_S", 0.1)
    server.answers = [stream(event("ADDED", "a"), more=True), answer("200 OK", PAGE)]
    with pytest.raises(KubeUnavailableError):
        await parts(kube)
    assert [part.resource_version for part in await parts(kube)] == ["9"]


@pytest.mark.parametrize(
    "line",
    [b"<html>\n", b'{"type":"ADDED","object":{}}\n', b'{"type":"ADDED","object":{"metadata":3}}\n'],
)
async def test_what_is_no_object_is_no_list(server: Server, kube: KubeClient, line: bytes) -> None:  # noqa: F811, RUF100
    server.answers = [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(line), line)
    ]
    with pytest.raises(KubeUnavailableError):
        await parts(kube)


async def test_pages_of_two_versions_are_no_list(server: Server, kube: KubeClient) -> None:  # noqa: F811, RUF100
    first = {**PAGE, "metadata": {"resourceVersion": "9", "continue": "more"}}
    server.answers = [
        answer("200 OK", first),
        answer("200 OK", {**PAGE, "metadata": {"resourceVersion": "8"}}),
    ]
    with pytest.raises(KubeUnavailableError, match="a page of version 8 in a list of 9"):
        await kube.list("pods")
