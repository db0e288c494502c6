"""Certificates that are replaced while the client runs, against a TLS server: the authority and
which one it shows.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
import yaml

from services.embedded.certificates import Certificates, client, ensure
from shared.kube.client import KubeClient
from shared.kube.port import Answer
from shared.telemetry import names
from tests.kube.test_credentials import REFUSED, kubeconfig
from tests.kube.test_transport import OK, Server

EVENT = b'{"type":"BOOKMARK","object":{}}\n'
WATCHED = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
    len(EVENT),
    EVENT,
)


class Secured(Server):
    """A server with a certificate that requests one from clients and records their names."""

    def __init__(self, shows: Certificates) -> None:
        super().__init__()
        self.shown: list[str] = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.show(shows)

    def show(self, made: Certificates) -> None:
        """Use this certificate from the next connection on, and accept clients of its authority."""
        self.context.load_cert_chain(made.certificate, made.key)
        self.context.load_verify_locations(made.ca)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subject = (writer.get_extra_info("peercert") or {}).get("subject", ())
        self.shown.append(dict(part for (part,) in subject).get("commonName", ""))
        await super().serve(reader, writer)


@pytest.fixture
def first(tmp_path: Path) -> Certificates:
    return ensure(tmp_path / "first", ["127.0.0.1"], ["one"])


@pytest.fixture
def second(tmp_path: Path) -> Certificates:
    return ensure(tmp_path / "second", ["127.0.0.1"], ["two"])


@asynccontextmanager
async def serving(shows: Certificates) -> AsyncIterator[Secured]:
    server = Secured(shows)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=server.context)
    server.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield server
    listening.close()


@asynccontextmanager
async def trusting(
    folder: Path, server: Server, shows: Certificates | None = None
) -> AsyncIterator[KubeClient]:
    """Return a client whose kubeconfig names `ca.crt` and a client certificate."""
    user = (
        {"client-certificate": str(shows.certificate), "client-key": str(shows.key)}
        if shows is not None
        else {}
    )
    path = Path(kubeconfig(folder, server.url, dict(user)))
    said = yaml.safe_load(path.read_text())
    said["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
    path.write_text(yaml.safe_dump(said))
    kube = KubeClient(str(path))
    yield kube
    await kube.close()


async def test_an_authority_that_was_added_is_trusted_by_the_next_call_and_watch(
    tmp_path: Path, first: Certificates, second: Certificates
) -> None:
    """An authority is replaced in steps: both are in the bundle, then the server has a certificate
    of the new one, then the bundle has only the new one.
    """
    bundle = tmp_path / "ca.crt"
    shutil.copy(first.ca, bundle)
    async with serving(first) as server, trusting(tmp_path, server) as kube:
        server.answers = [
            b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 12\r\n\r\n{"kind":"P"}',
            WATCHED,
        ]
        assert isinstance(await kube.get_pod("ns", "p"), Answer)
        bundle.write_text(first.ca.read_text() + second.ca.read_text())
        server.show(second)
        assert [seen.type async for seen in kube.watch("pods", "1")] == ["BOOKMARK"]
        shutil.copy(second.ca, bundle)
        server.answers = [OK]
        assert isinstance(await kube.get_pod("ns", "p"), Answer)


async def test_a_certificate_that_was_replaced_is_shown_and_half_a_rotation_leaves_the_old_one(
    tmp_path: Path, first: Certificates, second: Certificates
) -> None:
    shutil.copy(first.ca, tmp_path / "ca.crt")
    old, new = client(first.ca.parent, "one"), client(second.ca.parent, "two")
    async with serving(first) as server, trusting(tmp_path, server, old) as kube:
        server.context.load_verify_locations(second.ca)
        server.answers = [REFUSED]
        await kube.get_pod("ns", "p")
        shutil.copy(new.certificate, old.certificate)
        with structlog.testing.capture_logs() as lines:
            await kube.get_pod("ns", "p")
        shutil.copy(new.key, old.key)
        await kube.get_pod("ns", "p")
    assert server.shown == ["one", "one", "two"], (
        "a connection by which we are not known is not used again"
    )
    assert [line["event"] for line in lines] == [names.KUBE_CERTIFICATE]
