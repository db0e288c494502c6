"""TLS to the bundled NATS: certificates made and kept, wrong authorities refused, and no word to a
server without TLS.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from services.cli.main import app
from services.embedded.certificates import ensure
from services.embedded.errors import DataFolderError
from services.embedded.nats import NatsSettings, TlsFiles
from services.embedded.servers import EmbeddedServers
from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from shared.bus.jetstream_client import split_credentials
from shared.bus.jetstream_tls import AUTHORITIES, named, wanted
from shared.bus.port import BusUnavailable
from tests.fixtures.ports import free_port


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[EmbeddedServers]:
    settings = NatsSettings(tls_names=("nats",), exporter_password="only-reports")
    async with EmbeddedServers(
        tmp_path / "data", want_postgres=False, nats_settings=settings
    ) as running:
        yield running


async def test_services_and_exporters_reach_a_server_that_takes_tls_alone(
    servers: EmbeddedServers, caplog: pytest.LogCaptureFixture
) -> None:
    assert servers.nats_url.startswith("tls://topolog:")
    exporters = servers.nats_url.replace(
        servers.nats_url.split("@")[0], "tls://exporter:only-reports"
    )
    service, exporter = (
        JetStreamBus(servers.nats_url),
        JetStreamBus(exporters, patience_s=1.0, keeps_streams=False),
    )
    with pytest.raises(
        BusUnavailable, match=r"has no stream for topolog\.report\.n1; topology-store creates it"
    ):
        await exporter.publish(subjects.report("n1"), b"{}", {})
    await service.ensure_streams()
    await exporter.publish(subjects.report("n1"), b"{}", {})
    async with asyncio.timeout(30):
        batch = await anext(service.reports())
    assert [message.subject for message in batch] == [subjects.report("n1")]
    await asyncio.gather(service.close(), exporter.close())
    assert not caplog.records


async def test_a_client_that_trusts_another_authority_is_not_connected_and_says_why(
    servers: EmbeddedServers, tmp_path: Path
) -> None:
    second = ensure(tmp_path / "other", ["127.0.0.1"])
    base = servers.nats_url.partition("?")[0]
    unknown, absent = "certificate", r"none\.crt, which TOPOLOG_NATS_URL names by ca="
    for url, received in (
        (f"{base}?ca={second.ca}", unknown),
        (base, unknown),
        (base.replace("tls://", "nats://"), unknown),
        (f"{base}?ca={tmp_path}/none.crt", absent),
    ):
        bus = JetStreamBus(url, patience_s=1.0)
        with pytest.raises(BusUnavailable, match=received):
            await bus.publish(subjects.report("n1"), b"{}", {})
        await bus.close()


@pytest.mark.parametrize("query", ["", "?ca={ca}"])
async def test_a_server_that_offers_no_tls_hears_no_password(tmp_path: Path, query: str) -> None:
    received_messages = bytearray()

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        info = {
            "server_id": "x",
            "version": "2.11.0",
            "host": "127.0.0.1",
            "port": port,
            "max_payload": 1 << 20,
        }
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        while data := await reader.read(4096):
            received_messages.extend(data)
        writer.close()

    port = free_port()
    server = await asyncio.start_server(pretend, "127.0.0.1", port)
    scheme = "nats" if query else "tls"
    ca = ensure(tmp_path / "own", ["127.0.0.1"]).ca
    bus = JetStreamBus(
        f"{scheme}://topolog:s3cret@127.0.0.1:{port}{query.format(ca=ca)}", patience_s=1.0
    )
    with pytest.raises(BusUnavailable):
        await bus.publish(subjects.report("n1"), b"{}", {})
    await bus.close()
    server.close()
    assert bytes(received_messages) == b""


async def test_a_server_accepts_only_its_authoritys_clients_and_rereads_files_at_a_reconnect(
    tmp_path: Path,
) -> None:
    ensured = ensure(tmp_path / "tls", ["127.0.0.1"], ["exporter"])
    stranger = ensure(tmp_path / "other", ["127.0.0.1"], ["exporter"])
    tls = TlsFiles(str(ensured.certificate), str(ensured.key), str(ensured.ca), clients_too=True)
    own_part = tmp_path / "own"
    own_part.mkdir()
    query = f"?ca={ensured.ca}&cert={own_part}/tls.crt&key={own_part}/tls.key"
    settings = NatsSettings(tls=tls, password="s3cret")
    async with EmbeddedServers(
        tmp_path / "data", want_postgres=False, nats_settings=settings
    ) as servers:
        base = servers.nats_url.partition("?")[0]
        bus = JetStreamBus(base + query, patience_s=1.0)
        with pytest.raises(BusUnavailable, match=r"tls\.crt \(cert=\)"):
            await bus.ensure_streams()
        for folder in (stranger.ca.parent, ensured.ca.parent):
            shutil.copy(folder / "exporter.crt", own_part / "tls.crt")
            shutil.copy(folder / "exporter.key", own_part / "tls.key")
            if folder == stranger.ca.parent:
                with pytest.raises(BusUnavailable):
                    await bus.ensure_streams()
        waiting = JetStreamBus(base + query, patience_s=20)
        await waiting.ensure_streams()
        await asyncio.gather(bus.close(), waiting.close())


def test_certificates_are_kept_and_issued_again_for_other_names_by_the_same_authority(
    tmp_path: Path,
) -> None:
    first = ensure(tmp_path / "tls", ["nats", "127.0.0.1"])
    texts = [path.read_bytes() for path in (first.ca, first.certificate, first.key)]
    assert (
        first.key.stat().st_mode & 0o077,
        (tmp_path / "tls" / "ca.key").stat().st_mode & 0o077,
    ) == (0, 0)
    again = ensure(tmp_path / "tls", ["nats", "127.0.0.1"])
    assert [path.read_bytes() for path in (again.ca, again.certificate, again.key)] == texts
    second = ensure(tmp_path / "tls", ["nats", "fd00::7"])
    assert second.ca.read_bytes() == texts[0]
    made = x509.load_pem_x509_certificate(second.certificate.read_bytes())
    called = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(first_one.value) for first_one in called] == ["nats", "fd00::7"]
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        second.certificate, second.key
    )


def test_the_command_names_the_secret_of_nats_where_the_certificate_is_natss(
    tmp_path: Path,
) -> None:
    asked = ["certificates", "--dir", str(tmp_path / "tls")]
    assert "secret generic topolog-nats-tls" in CliRunner().invoke(app, asked).stdout
    assert "topolog-nats-tls" not in CliRunner().invoke(app, [*asked, "--name", "topolog"]).stdout


def test_a_damaged_certificate_is_named_with_the_remedy(tmp_path: Path) -> None:
    ensured = ensure(tmp_path / "tls", ["nats"])
    ensured.ca.write_text("no certificate")
    with pytest.raises(DataFolderError, match=r"the certificates in .*tls cannot be used"):
        ensure(tmp_path / "tls", ["nats"])


def test_a_url_names_the_trusted_authority_and_servers_do_not_see_it() -> None:
    url = "tls://u:p@a:1?ca=/x%20y/ca.crt,tls://b:2"
    assert (wanted(url), named(url, AUTHORITIES)) == (True, "/x y/ca.crt")
    assert split_credentials(url) == (["tls://a:1", "tls://b:2"], {"user": "u", "password": "p"})
    assert (wanted("nats://a:1"), named("nats://a:1", AUTHORITIES), wanted("nats://a:1?ca=f")) == (
        False,
        "",
        True,
    )
