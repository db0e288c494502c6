"""The HTTP server of a service under clients that never finish a request, and without the token."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shared.runtime import http_access
from shared.runtime.app import Exit
from shared.runtime.http_access import Access
from shared.runtime.http_reading import READ_LIMIT_S
from tests.runtime.test_app import Running, running, spawn


def half_open(service: Running, begin: bytes) -> socket.socket:
    """Open a connection and send the beginning of a request."""
    host, port = service.started["url"].removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(begin)
    return connection


def ask(service: Running, path: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(service.started["url"] + path, headers=headers), timeout=60
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


BEGINNINGS = (
    b"",
    b"GET /hel",
    b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab",
)


def test_half_open_requests_delay_no_answer_and_are_closed() -> None:
    """A kept connection has the limit for its next request, too."""
    with running() as service, ExitStack() as stack:
        lent = [
            [stack.enter_context(half_open(service, begin)) for _ in range(90)]
            for begin in BEGINNINGS
        ]
        kept = half_open(service, b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        stack.enter_context(kept)
        assert b"200" in kept.recv(4096)
        kept.sendall(b"GET /hel")
        assert ask(service, "/livez") == ask(service, "/hello") == 200
        begun_s = time.monotonic()
        for connection in (kept, *(connections[0] for connections in lent)):
            while connection.recv(4096):
                pass
        assert time.monotonic() - begun_s < 10 * READ_LIMIT_S, (
            "closed by the server, long before its client gives up"
        )


def test_metrics_and_state_need_the_token_where_one_is_set_and_probes_do_not() -> None:
    with running(http_token="s3cret") as service:
        assert [ask(service, path) for path in ("/livez", "/healthz", "/readyz")] == [200, 200, 200]
        assert [ask(service, path) for path in ("/metrics", "/hello")] == [401, 401]
        assert ask(service, "/metrics", "wrong") == 401
        assert [ask(service, path, "s3cret") for path in ("/metrics", "/hello")] == [200, 200]
        assert "s3cret" not in json.dumps(service.started)


def test_a_token_in_a_file_is_read_again_when_it_changes_and_kept_while_it_cannot_be_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    with running(http_token_file=str(file)) as service:

        def answers() -> list[int]:
            return [ask(service, "/hello", token) for token in ("", "first", "second")]

        assert answers() == [401, 200, 401]
        (tmp_path / "next").write_text("second")
        (tmp_path / "next").replace(file)
        assert answers() == [401, 401, 200], "at once, for the next request"
        for spoil in (
            lambda: file.write_text(" \n"),
            lambda: file.write_bytes(b"\xff"),
            file.unlink,
        ):
            spoil()
            assert answers() == [401, 401, 200], (
                "never open, and never closed to who had the last one"
            )
        file.write_text("first")
        assert answers() == [401, 200, 401]


def test_ports_open_to_the_network_cause_a_warning_and_are_refused_in_production() -> None:
    process = spawn(http_host="0.0.0.0", production="true")
    _, err = process.communicate(timeout=60)
    assert process.returncode == Exit.SETTINGS
    assert "TOPOLOG_HTTP_TOKEN" in err
    with running(http_host="127.0.0.1", production="true") as service:
        assert ask(service, "/hello") == 200


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_is_distinguished_from_the_network(host: str, local: bool) -> None:
    assert http_access.is_loopback(host) is local


# A web page reaches a loopback port by its own name (DNS rebinding) or by a form (cross-site post).
FOREIGN_HOSTS = ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "a.b", ""]
OWN_HOSTS = [
    "127.0.0.1",
    "127.0.0.1:80",
    "localhost:8080",
    "[::1]:80",
    "10.1.2.3:8080",
    "scheduler:8080",
    "topolog-scheduler.topolog.svc:8080",
    "topolog-scheduler.topolog.svc.cluster.local",
    "state.example",
]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/state", "/"])
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
async def test_a_name_that_public_dns_may_contain_is_refused(path: str, host: str) -> None:
    assert await answered(path, headers={"host": host}) == 421


@pytest.mark.parametrize("host", OWN_HOSTS)
async def test_addresses_cluster_names_and_allowed_names_are_answered(host: str) -> None:
    assert await answered("/state", headers={"host": host}) == 200


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
async def test_a_request_that_may_change_something_must_be_json(
    content_type: str, status: int
) -> None:
    headers = {"host": "127.0.0.1"} | ({"content-type": content_type} if content_type else {})
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert await answered("/state", method, headers) == status


async def test_a_port_with_a_token_may_have_any_name() -> None:
    headers = {"host": "state.corp.example", "authorization": "Bearer s"}
    assert await answered("/state", headers=headers, token="s") == 200
    assert await answered("/state", headers={"host": "state.corp.example"}, token="s") == 401


async def answered(
    path: str, method: str = "GET", headers: dict[str, str] | None = None, token: str = ""
) -> int:
    """Return the status of one request to the access layer."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    statuses: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "headers": [(k.encode(), v.encode()) for k, v in (headers or {}).items()],
    }
    await Access(app, token, hosts=["state.example"])(scope, receive, send)
    return statuses[0]
