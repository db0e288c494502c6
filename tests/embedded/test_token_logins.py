"""Logins of exporters by their pods' tokens: the bundled server as its container starts it, and an
API that reviews tokens.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from nats.aio.client import Client
from nats.errors import Error as NatsError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from services.embedded import nats_credentials
from services.embedded.node_logins import NODE, Refused, judged
from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from shared.bus.pod_tokens import AUDIENCE, claims, encoded
from shared.bus.port import BusUnavailable
from tests.embedded.refused import settled
from tests.embedded.test_containers import entry, stop, wait_ready
from tests.embedded.test_nats_rights import FORBIDDEN_PUBLICATIONS, FORBIDDEN_SUBSCRIPTIONS
from tests.fixtures.ports import free_port

EXPORTERS = "system:serviceaccount:topolog:exporter"


def token(node: str, number: int = 0, lives_s: float = 3600.0) -> str:
    payload = {
        "exp": int(time.time() + lives_s),
        "kubernetes.io": {"node": {"name": node}},
        "jti": str(number),
    }
    return ".".join([encoded(b"{}"), encoded(json.dumps(payload).encode()), encoded(b"signature")])


def review(node: str, **other: Any) -> dict[str, Any]:
    user = {"username": EXPORTERS, "extra": {NODE: [node]}}
    return {"authenticated": True, "user": user, "audiences": [AUDIENCE], **other}


class Api:
    """Knows some tokens; other tokens are not authenticated."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.asked: list[dict[str, Any]] = []
        self.status = 201

    def gives(self, node: str, number: int = 0, lives_s: float = 3600.0, **other: Any) -> str:
        made = token(node, number, lives_s)
        self.known[made] = review(node, **other)
        return made

    async def answer(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.asked.append(body)
        status = self.known.get(body["spec"]["token"], {"authenticated": False})
        return JSONResponse({"kind": "TokenReview", "status": status}, self.status)


@pytest.fixture
async def api() -> AsyncIterator[tuple[Api, str]]:
    made = Api()
    app = Starlette(
        routes=[Route("/apis/authentication.k8s.io/v1/tokenreviews", made.answer, methods=["POST"])]
    )
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield made, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await serving


class Running:
    """The container's process, with exporters whose tokens are in files."""

    def __init__(self, api: Api, folder: Path, port: int, process: subprocess.Popen[str]) -> None:
        self.api, self.folder, self.port, self.process = api, folder, port, process
        self.buses: list[JetStreamBus] = []
        self.reports = JetStreamBus(f"tls://topolog:all@127.0.0.1:{port}?ca={folder}/ca.crt")

    def write(self, text: str, name: str = "token") -> str:
        """Write a projected token as the kubelet does, so that it is never read in part."""
        (self.folder / f"{name}.new").write_text(text)
        return str((self.folder / f"{name}.new").replace(self.folder / name))

    def exporter(self, text: str, name: str = "token", patience_s: float = 10.0) -> JetStreamBus:
        url = f"tls://127.0.0.1:{self.port}?ca={self.folder}/ca.crt&token={self.write(text, name)}"
        self.buses.append(JetStreamBus(url, keeps_streams=False, patience_s=patience_s))
        return self.buses[-1]


@pytest.fixture
async def running(api: tuple[Api, str], tmp_path: Path) -> AsyncIterator[Running]:
    port, keys = free_port(), tmp_path / "keys"
    nats_credentials.keep(keys, [("k1", ["k1"])])
    variables = {
        "TOPOLOG_DATA_DIR": str(tmp_path / "data"),
        "TOPOLOG_NATS_PASSWORD": "all",
        "TOPOLOG_NATS_LOGINS": EXPORTERS,
        "TOPOLOG_NATS_CREDENTIALS_DIR": str(keys),
        "TOPOLOG_KUBECONFIG": api[1],
        "TOPOLOG_NATS_PORT": str(port),
        "TOPOLOG_NATS_MONITOR_PORT": str(free_port()),
        "TOPOLOG_NATS_TLS_NAMES": "nats",
        "TOPOLOG_NATS_CA_DIR": str(tmp_path),
    }
    process = entry("run_nats", **variables)
    try:
        await asyncio.to_thread(wait_ready, process, "nats")
        running_servers = Running(api[0], tmp_path, port, process)
        await running_servers.reports.ensure_streams()
        yield running_servers
        await asyncio.gather(
            running_servers.reports.close(), *(bus.close() for bus in running_servers.buses)
        )
    finally:
        stop(process)


async def heard(running: Running, count: int) -> list[str]:
    result: set[str] = set()
    async with asyncio.timeout(30):
        async for batch in running.reports.reports():
            result |= {message.subject for message in batch} - {subjects.ECHO}
            if len(result) >= count:
                break
    return sorted(result)


async def test_a_pod_speaks_for_its_own_node_and_says_and_hears_nothing_else(
    running: Running,
) -> None:
    printed_entry, two = running.api.gives("n1"), running.api.gives("n2.example")
    first, second = running.exporter(printed_entry, "one"), running.exporter(two, "two")
    keyed = JetStreamBus(
        f"tls://127.0.0.1:{running.port}?ca={running.folder}/ca.crt&seed={running.folder}/keys/seeds/k1.nk"
    )
    for bus, node in ((first, "n1"), (second, "n2.example"), (keyed, "k1")):
        await bus.publish(subjects.report(node), b"{}", {})
    assert await heard(running, 3) == [
        "topolog.report.k1",
        "topolog.report.n1",
        "topolog.report.n2%2Eexample",
    ]
    assert {body["spec"]["audiences"][0] for body in running.api.asked} == {AUDIENCE}
    await asyncio.gather(first.close(), second.close(), keyed.close())
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error).lower())

    bare = Client()
    await bare.connect(
        f"nats://127.0.0.1:{running.port}", token=printed_entry, error_cb=note, tls=_unchecked()
    )
    publications = [
        *FORBIDDEN_PUBLICATIONS,
        subjects.report("n2.example"),
        subjects.ECHO,
        "$SYS.REQ.USER.AUTH",
        "_INBOX.x",
    ]
    for subject in publications:
        refused.clear()
        await bare.publish(subject, b"{}")
        await settled(bare, refused)
        assert any("permissions violation for publish" in text for text in refused), subject

    async def ignored(_message: Any) -> None:
        return

    for subject in (*FORBIDDEN_SUBSCRIPTIONS, subjects.report("n1"), "$SYS.REQ.USER.AUTH"):
        refused.clear()
        await bare.subscribe(subject, cb=ignored)
        await settled(bare, refused)
        assert any("permissions violation for subscription" in text for text in refused), subject
    await bare.close()


async def test_other_clients_are_refused_and_services_do_not_need_the_api(
    running: Running,
) -> None:
    others = {
        "nobody": token("n1"),
        "garbage": "garbage",
        "empty": "",
        "another's": running.api.gives(
            "n1", 1, user={"username": "system:serviceaccount:topolog:x", "extra": {NODE: ["n1"]}}
        ),
        "for another": running.api.gives("n1", 2, audiences=["https://kubernetes.default.svc"]),
        "no node": running.api.gives("n1", 3, user={"username": EXPORTERS}),
    }
    await asyncio.gather(
        *(_refused(running.exporter(text, name, patience_s=3.0)) for name, text in others.items())
    )
    with pytest.raises(NatsError):
        await Client().connect(
            f"nats://127.0.0.1:{running.port}",
            token="gar.ba.ge",
            tls=_unchecked(),
            allow_reconnect=False,
        )
    assert {body["spec"]["token"] for body in running.api.asked} <= running.api.known.keys() | {
        others["nobody"]
    }
    running.api.status = 403
    bus = running.exporter(running.api.gives("n1", 4), "late", patience_s=3.0)
    with pytest.raises(BusUnavailable):
        await bus.publish(subjects.report("n1"), b"{}", {})
    again = JetStreamBus(f"tls://topolog:all@127.0.0.1:{running.port}?ca={running.folder}/ca.crt")
    await again.ensure_streams()
    running.api.status = 201
    async with asyncio.timeout(30):
        while not await bus.connected():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await bus.publish(subjects.report("n1"), b"{}", {})
    await asyncio.gather(bus.close(), again.close())
    running.process.terminate()
    _, words = await asyncio.to_thread(running.process.communicate, timeout=60)
    assert "not for topolog-nats" in words
    assert "not (or no longer) valid" in words
    assert "it is not a pod's token" in words
    assert "names no node" in words
    assert "system:serviceaccount:topolog:x" in words
    assert "grant create on tokenreviews" in words
    assert not any(text in words for text in others.values() if len(text) > 10)


async def test_a_token_ends_a_connection_with_itself_and_its_successor_is_read_from_the_file(
    running: Running,
) -> None:
    async def keep_fresh() -> None:
        """Replace the tokens in time, so that a token of 3 s does not expire before a busy machine
        uses it.
        """
        for number in itertools.count(1):
            running.write(running.api.gives("n1", number, lives_s=3.0))
            await asyncio.sleep(0.5)

    writing = asyncio.create_task(keep_fresh())
    await asyncio.sleep(0)
    bus = running.exporter(running.api.gives("n1", 0, lives_s=3.0))
    await bus.publish(subjects.report("n1"), b"{}", {})
    writing.cancel()
    successor = running.api.gives("n1", 1000)
    running.write(successor)
    async with asyncio.timeout(30):
        while running.api.asked[-1]["spec"]["token"] != successor:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await bus.publish(subjects.report("n1"), b'{"again":1}', {})
    await bus.close()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "no TokenReview"),
        ({"status": []}, "no TokenReview"),
        ({"status": {"authenticated": "yes"}}, "no TokenReview"),
        ({"status": {}}, "not \\(or no longer\\) valid"),
        (
            {"status": review("n1", user={"username": EXPORTERS, "extra": {NODE: []}})},
            "names no node",
        ),
        (
            {"status": review("n1", user={"username": EXPORTERS, "extra": {NODE: ["n1", "n2"]}})},
            "names no node",
        ),
        ({"status": review("n1", audiences=None)}, "not for topolog-nats"),
    ],
)
def test_an_incomplete_review_is_refused(body: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        judged(body, EXPORTERS)


def test_a_malformed_token_is_refused_and_not_shown() -> None:
    secret = "s3cret"
    payloads = [
        b"{}",
        b"[]",
        b"\xff",
        b'{"exp": 1, "kubernetes.io": {}}',
        b'{"exp": "x", "kubernetes.io": {"node": {"name": "n"}}}',
    ]
    for text in (
        secret,
        f"{secret}.{secret}.{secret}",
        "a" * 9000,
        *(f"a.{encoded(data)}.{secret}" for data in payloads),
    ):
        with pytest.raises(ValueError) as raised:
            claims(text)
        assert secret not in str(raised.value)


async def _refused(bus: JetStreamBus) -> None:
    with pytest.raises(BusUnavailable):
        await bus.publish(subjects.report("n1"), b"{}", {})
    await bus.close()


def _unchecked() -> ssl.SSLContext:
    """Return a TLS context without a check of the certificate, which these tests do not need."""
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made
