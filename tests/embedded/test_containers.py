"""The container entry points as real processes: settings, passwords, health checks, the signal to
stop.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import msgspec
import nats
import pytest

from services.embedded.nats import NatsAddress, NatsSettings, render_config
from services.embedded.servers import EmbeddedServers
from shared.bus.jetstream import JetStreamBus
from shared.bus.port import BusUnavailable
from shared.bus.subjects import inbox_prefix, report
from tests.fixtures.ports import free_port
from tests.fixtures.servers import short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path / "data"


def entry(module: str, *flags: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"services.embedded.{module}", *flags],
        env={**os.environ, **variables},
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("run_postgres", ["TOPOLOG_POSTGRES_PASSWORD"]),
        ("run_nats", ["TOPOLOG_NATS_PASSWORD", "TOPOLOG_NATS_EXPORTER_PASSWORD"]),
    ],
)
def test_missing_passwords_are_all_named_at_once(
    module: str, names: list[str], folder: Path
) -> None:
    process = entry(module, TOPOLOG_DATA_DIR=str(folder))
    _, words = process.communicate(timeout=60)
    assert process.returncode == 2
    assert all(name in words for name in names)
    assert "Traceback" not in words


def wait_ready(process: subprocess.Popen[str], name: str) -> None:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith(f"{name} ready"):
            return
    raise AssertionError("".join(seen))


def wait_healthy(server: str, variables: dict[str, str]) -> None:
    """Repeat the health check until it passes, as a container runtime does, because the first one
    may come before the database exists.
    """
    for _ in range(20):
        if entry("run_check", server, **variables).wait(timeout=60) == 0:
            return
    raise AssertionError(f"{server} never healthy")


async def test_the_nats_container_makes_its_certificates_and_shares_its_authority(
    folder: Path,
) -> None:
    port, shared_folder = free_port(), folder.parent / "shared"
    shared_folder.mkdir()
    variables = {
        "TOPOLOG_DATA_DIR": str(folder),
        "TOPOLOG_NATS_PASSWORD": "all",
        "TOPOLOG_NATS_EXPORTER_PASSWORD": "reports",
        "TOPOLOG_NATS_PORT": str(port),
        "TOPOLOG_NATS_MONITOR_PORT": str(free_port()),
        "TOPOLOG_NATS_TLS_NAMES": "nats",
        "TOPOLOG_NATS_CA_DIR": str(shared_folder),
    }
    process = entry("run_nats", **variables)
    try:
        wait_ready(process, "nats")
        wait_healthy("nats", variables)
        bus = JetStreamBus(f"tls://topolog:all@127.0.0.1:{port}?ca={shared_folder}/ca.crt")
        await bus.ensure_streams()
        await bus.close()
        assert [path.name for path in shared_folder.iterdir()] == ["ca.crt"]
    finally:
        stop(process)


async def test_a_key_made_while_nats_runs_takes_effect_and_ends_the_shared_user(
    folder: Path,
) -> None:
    port, keys = free_port(), folder.parent / "keys"
    nodes_file = folder.parent / "nodes.json"
    nodes_file.write_text('[{"name": "n1"}, {"name": "n2"}]')
    variables = {
        "TOPOLOG_DATA_DIR": str(folder),
        "TOPOLOG_NATS_PASSWORD": "all",
        "TOPOLOG_NATS_EXPORTER_PASSWORD": "reports",
        "TOPOLOG_NATS_PORT": str(port),
        "TOPOLOG_NATS_MONITOR_PORT": str(free_port()),
        "TOPOLOG_NATS_CREDENTIALS_DIR": str(keys),
    }
    process = entry("run_nats", **variables)
    try:
        wait_ready(process, "nats")
        services = JetStreamBus(f"nats://topolog:all@127.0.0.1:{port}")
        await services.ensure_streams()
        await services.close()
        shared = JetStreamBus(
            f"nats://exporter:reports@127.0.0.1:{port}", keeps_streams=False, patience_s=1.0
        )
        await shared.publish(report("n1"), b"{}", {})
        made = {
            "TOPOLOG_NATS_CREDENTIALS_DIR": str(keys),
            "TOPOLOG_NATS_CREDENTIAL": "two",
            "TOPOLOG_NODES_FILE": str(nodes_file),
        }
        assert entry("run_credentials", **made).wait(timeout=60) == 0
        expected = JetStreamBus(
            f"nats://127.0.0.1:{port}?seed={keys}/seeds/two.nk",
            keeps_streams=False,
            patience_s=30.0,
        )
        await expected.publish(report("n2"), b"{}", {})
        with pytest.raises(BusUnavailable):
            await shared.publish(report("n1"), b"{}", {})
        await asyncio.gather(expected.close(), shared.close())
    finally:
        stop(process)


def test_a_kubeconfig_is_copied_for_the_services_alone_and_again_when_it_changed(
    folder: Path,
) -> None:
    source, target = folder.parent / "from", folder.parent / "to"
    variables = {
        "TOPOLOG_KUBECONFIG_FROM": str(source),
        "TOPOLOG_KUBECONFIG_TO": str(target),
        "TOPOLOG_USER_ID": str(os.getuid()),
    }
    for text in ("first", "second"):
        source.write_text(text)
        assert entry("run_kubeconfig", **variables).wait(timeout=60) == 0
        assert (target.read_text(), target.stat().st_mode & 0o777, target.stat().st_uid) == (
            text,
            0o400,
            os.getuid(),
        )
    source.unlink()
    process = entry("run_kubeconfig", **variables)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "No such file" in words
    assert "KUBECONFIG_FILE" in words


def test_a_certificate_without_its_key_is_named(folder: Path) -> None:
    folder.mkdir()
    (folder / "tls.crt").touch()
    variables = {"TOPOLOG_NATS_PASSWORD": "all", "TOPOLOG_NATS_EXPORTER_PASSWORD": "reports"}
    process = entry(
        "run_nats",
        TOPOLOG_DATA_DIR=str(folder / "data"),
        TOPOLOG_NATS_TLS_DIR=str(folder),
        **variables,
    )
    _, words = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "contains only tls.crt" in words


def stop(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 0, words
    return words


async def test_the_postgres_container_is_healthy_asks_tcp_clients_for_the_password_and_stops(
    folder: Path,
) -> None:
    port = free_port()
    variables = {
        "TOPOLOG_DATA_DIR": str(folder),
        "TOPOLOG_POSTGRES_PASSWORD": "it's secret",
        "TOPOLOG_POSTGRES_SHARED_BUFFERS_MB": "32",
        "TOPOLOG_POSTGRES_PORT": str(port),
    }
    assert entry("run_check", "postgres", **variables).wait(timeout=60) == 1
    assert entry("run_postgres", "--check", **variables).wait(timeout=60) == 1, (
        "as manifests of earlier releases ask"
    )
    process = entry("run_postgres", **variables)
    try:
        wait_ready(process, "postgres")
        wait_healthy("postgres", variables)
        where = {
            "host": "127.0.0.1",
            "port": port,
            "user": "postgres",
            "database": "topolog",
            "ssl": False,
        }
        connection = await asyncpg.connect(password="it's secret", **where)
        assert await connection.fetchval("select 1") == 1
        await connection.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(password="wrong", **where)
    finally:
        words = stop(process)
    assert "postgres stopped" in words
    assert "secret" not in (folder / "logs" / "postgres.log").read_text()


def test_the_nats_container_is_healthy_stops_and_shows_its_state_to_its_own_machine_alone(
    folder: Path,
) -> None:
    variables = {
        "TOPOLOG_DATA_DIR": str(folder),
        "TOPOLOG_NATS_PASSWORD": "all",
        "TOPOLOG_NATS_EXPORTER_PASSWORD": "reports",
        "TOPOLOG_NATS_PORT": str(free_port()),
        "TOPOLOG_NATS_MONITOR_PORT": str(free_port()),
    }
    assert entry("run_check", "nats", **variables).wait(timeout=60) == 1
    assert entry("run_nats", "--check", **variables).wait(timeout=60) == 1, (
        "as manifests of earlier releases ask"
    )
    process = entry("run_nats", **variables)
    try:
        wait_ready(process, "nats")
        wait_healthy("nats", variables)
        neighbour = "127.0.0.2"
        socket.create_connection((neighbour, int(variables["TOPOLOG_NATS_PORT"]))).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(
                (neighbour, int(variables["TOPOLOG_NATS_MONITOR_PORT"]))
            ).close()
    finally:
        stop(process)


def test_a_wrong_number_is_named_with_its_range(folder: Path) -> None:
    process = entry(
        "run_postgres",
        TOPOLOG_DATA_DIR=str(folder),
        TOPOLOG_POSTGRES_PASSWORD="x",
        TOPOLOG_POSTGRES_PORT="70000",
    )
    _, words = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "TOPOLOG_POSTGRES_PORT must be a whole number from 1 to 65535 (found '70000')" in words


async def test_the_exporters_user_may_publish_reports_and_nothing_else(folder: Path) -> None:
    settings = NatsSettings(exporter_password="reports only")
    async with EmbeddedServers(folder, want_postgres=False, nats_settings=settings) as servers:
        full = await nats.connect(servers.nats_url)
        await full.jetstream().add_stream(name="TOPOLOG_REPORTS", subjects=["topolog.report.*"])
        await full.jetstream().add_stream(name="TOPOLOG_FACTS", subjects=["topolog.fact.>"])
        refused: list[str] = []

        async def note(error: Exception) -> None:
            refused.append(str(error))

        port = servers.nats_url.rpartition(":")[2]
        exporter = await nats.connect(
            f"nats://127.0.0.1:{port}",
            user="exporter",
            password="reports only",
            error_cb=note,
            inbox_prefix=inbox_prefix("exporter"),
        )
        await exporter.publish("topolog.report.n1", b"x")
        await exporter.flush()
        js = full.jetstream()
        async with asyncio.timeout(60):  # NATS answers a flush before the stream has the message.
            while not (await js.stream_info("TOPOLOG_REPORTS")).state.messages:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await exporter.publish("topolog.fact.pod.bound", b"forged")
        await exporter.subscribe("topolog.>")
        await exporter.flush()
        while len(refused) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert all("permissions violation" in words.lower() for words in refused)
        assert (await full.jetstream().stream_info("TOPOLOG_FACTS")).state.messages == 0
        await exporter.close()
        await full.close()


def test_passwords_with_quotes_survive_the_configuration(folder: Path) -> None:
    hostile = 'a"b\\c } $x'
    text = render_config(
        NatsAddress(4222, 8222, hostile), folder, NatsSettings(exporter_password=hostile)
    )
    users = msgspec.json.decode(text)["authorization"]["users"]
    assert [user["password"] for user in users] == [hostile, hostile]


def test_a_health_check_loads_nothing_of_what_serving_needs() -> None:
    """Two of them run every two seconds in the Compose stack."""
    code = "import sys, services.embedded.run_check; print(*sys.modules)"
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        ).stdout.split()
    )
    assert "services.embedded.postgres" in loaded
    assert not loaded & {
        "structlog",
        "opentelemetry",
        "nats",
        "nacl",
        "sqlalchemy",
        "asyncpg",
        "pydantic",
    }


def test_a_health_check_needs_the_name_of_a_server() -> None:
    process = entry("run_check", "mysql")
    _, words = process.communicate(timeout=60)
    assert (process.returncode, words) == (2, "error: name one of nats, postgres\n")
