"""The lean transport against servers that answer well, badly, late or never: a lost answer is a
value, never a retry.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from shared.kube import client, transport
from shared.kube.client import KubeClient
from shared.kube.port import Answer, KubeUnavailableError, Lost
from shared.kube.rights import Right

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"kind":"P"}'


class Server:
    """A server that answers each request with the next of `answers`, then with the last one. None
    hangs, b"" closes the connection. The requests are recorded.
    """

    def __init__(self) -> None:
        self.answers: list[bytes | None] = [OK]
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                self.requests.append(await self._request(reader))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    await asyncio.Event().wait()
                if not answer:
                    return
                writer.write(answer)
                if b"close" in answer or b"cut" in answer:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.open -= 1
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [
            line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        ]
        return head + (await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b"")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    test_server = Server()
    listening = await asyncio.start_server(test_server.serve, "127.0.0.1", 0)
    test_server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield test_server
    listening.close()


@pytest.fixture
async def kube(server: Server) -> AsyncIterator[KubeClient]:
    kube_client = KubeClient(server.url)
    yield kube_client
    await kube_client.close()


Get = Callable[[], Awaitable[Answer | Lost]]


@pytest.fixture
def get(kube: KubeClient) -> Get:
    return lambda: kube.get_pod("ns", "p")


async def test_one_connection_serves_calls_that_follow_each_other(server: Server, get: Get) -> None:
    for _ in range(5):
        assert await get() == Answer(200, body={"kind": "P"})
    assert server.connections == 1
    assert server.requests[0].startswith(b"GET /api/v1/namespaces/ns/pods/p HTTP/1.1\r\n")


async def test_a_name_of_any_characters_stays_within_the_requests_line(
    server: Server, kube: KubeClient
) -> None:
    """Names come from outside. A line break in a name must not begin a second request."""
    await kube.get_pod("ns", "a b\r\nHost: elsewhere\r\n\r\nGET /?x#ä%41")
    assert server.requests == [
        b"GET "
        b"/api/v1/namespaces/ns/pods/a%20b%0D%0AHost%3A%20elsewhere%0D%0A%0D%0AGET%20/%3Fx%23%C3%A4"
        b"%2541 HTTP/1.1\r\n"
        b"Host: " + server.url.removeprefix("http://").encode() + b"\r\n"
        b"Accept: application/json\r\nUser-Agent: topolog\r\n\r\n"
    ]


async def test_parameters_are_quoted_and_a_servers_own_path_stays_in_front(server: Server) -> None:
    kube = KubeClient(f"{server.url}/clusters/one")
    await kube.resource_slices("n 1&limit=2")
    await kube.close()
    line = server.requests[0].split(b"\r\n")[0]
    assert line == (
        b"GET "
        b"/clusters/one/apis/resource.k8s.io/v1/resourceslices"
        b"?fieldSelector=spec.nodeName%3Dn+1%26limit%3D2 HTTP/1.1"
    )


async def test_a_header_that_cannot_be_sent_is_a_lost_answer_and_nothing_is_sent(
    server: Server, kube: KubeClient
) -> None:
    answer = await kube._call("PATCH", "/x", body={}, content_type="a\r\nHost: elsewhere")
    assert isinstance(answer, Lost)
    assert "Content-Type" in answer.message
    assert server.requests == []


async def test_calls_at_once_share_a_bounded_number_of_connections(server: Server) -> None:
    kube = KubeClient(server.url, max_connections=3)
    answers = await asyncio.gather(*(kube.get_pod("ns", f"p{number}") for number in range(20)))
    assert {type(answer) for answer in answers} == {Answer}
    assert server.connections <= 3
    await kube.close()


@pytest.mark.parametrize(
    "answer",
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
            b'chunked\r\n\r\n7\r\n{"kind"\r\n5\r\n:"P"}\r\n0\r\n\r\n'
        ),
        b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"kind":"P"}',
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
        % (len(gzip.compress(b'{"kind":"P"}', mtime=0)), gzip.compress(b'{"kind":"P"}', mtime=0)),
        b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 12\r\n\r\n{"kind":"P"}',
    ],
)
async def test_every_way_of_sending_a_body_is_read(server: Server, get: Get, answer: bytes) -> None:
    server.answers = [answer]
    assert await get() == Answer(200, body={"kind": "P"})
    assert await get() == Answer(200, body={"kind": "P"})


async def test_a_kept_connection_that_the_server_closed_is_not_used_again(
    server: Server, get: Get
) -> None:
    server.answers = [
        OK + b"",
        b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 12\r\n\r\n{"kind":"P"}',
        OK,
    ]
    for _ in range(3):
        assert isinstance(await get(), Answer)
        await asyncio.sleep(0.02)
    assert server.connections == 2


async def test_a_connection_idle_for_too_long_is_replaced(
    server: Server, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    await get()
    monkeypatch.setattr(transport, "KEEP_IDLE_S", 0.0)
    await get()
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\nX: cut",
        b"\x00\x01 not http, cut\r\n\r\n",
    ],
)
async def test_an_answer_that_was_cut_off_is_lost_and_the_request_was_sent_once(
    server: Server, get: Get, answer: bytes
) -> None:
    server.answers = [answer]
    lost = await get()
    assert isinstance(lost, Lost)
    assert "GET /api/v1/namespaces/ns/pods/p" in lost.message
    assert len(server.requests) == 1
    server.answers = [OK]
    assert isinstance(await get(), Answer)


async def test_no_answer_in_time_is_lost_and_frees_its_connection(
    server: Server, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers = [None]
    with monkeypatch.context() as hurried:
        hurried.setattr(client, "CALL_TIMEOUT_S", 0.05)
        assert isinstance(await get(), Lost)
    server.answers = [OK]
    assert isinstance(await get(), Answer)
    assert server.connections == 2


async def test_a_closed_port_is_a_lost_call_and_an_unavailable_list() -> None:
    kube = KubeClient("http://127.0.0.1:9")
    assert isinstance(await kube.get_pod("ns", "p"), Lost)
    with pytest.raises(KubeUnavailableError, match=r"list of pods from http://127\.0\.0\.1:9"):
        await kube.list("pods")
    await kube.close()


async def test_a_body_above_the_limit_is_cut_off(
    server: Server, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_BODY_BYTES", 1000)
    server.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000]
    answer = await get()
    assert isinstance(answer, Lost)
    assert "limit of 1000 bytes" in answer.message


async def test_an_answer_that_is_no_json_keeps_its_status_and_text(
    server: Server, get: Get
) -> None:
    server.answers = [b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 11\r\n\r\n<html>sorry"]
    assert await get() == Answer(502, message="<html>sorry")


NO_ANSWERS = [
    b"<html>sign in</html>",
    b'{"error": "sign in"}',
    b"",
    b'{"a": "\xff"}',
    b'{"a": ' + b"[" * 100_000,
]


@pytest.mark.parametrize(
    "body", NO_ANSWERS, ids=["page", "no kind", "nothing", "no text", "endless nesting"]
)
@pytest.mark.parametrize("status", [200, 201, 302, 403, 404, 409])
async def test_what_no_api_server_sends_settles_no_binding(
    server: Server, kube: KubeClient, status: int, body: bytes
) -> None:
    """A proxy's page shows neither that the pod is bound nor that it does not exist."""
    server.answers = [b"HTTP/1.1 %d So\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)]
    for answer in (
        await kube.bind("ns", "p", "u", "n", {}),
        await kube.get_pod("ns", "p"),
        await kube.evict("ns", "p", "u"),
    ):
        assert isinstance(answer, Lost)
        assert "is a proxy in between?" in answer.message


async def test_a_page_grants_no_right(server: Server, kube: KubeClient) -> None:
    server.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n<html>sign in</html>"]
    assert isinstance(await kube.may(Right("", "pods", "list")), Lost)


async def test_the_token_of_a_kubeconfig_goes_with_every_call(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{server.url}"}}}}]
users: [{{name: u, user: {{token: s3cret}}}}]
"""
    )
    kube = KubeClient(str(path))
    await kube.get_pod("ns", "p")
    await kube.close()
    assert b"authorization: bearer s3cret" in server.requests[0].lower()
