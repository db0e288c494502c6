"""Search a whole run for its secrets: each is with its users, and in no log, event, metric, file or
command line. Environments and command lines are read from /proc while the run lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import asyncpg
import psutil

from services.embedded.data_dir import read_addresses
from services.embedded.nats import NatsSettings
from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers
from shared.eventlog.postgres_connection import plain_url
from tests.fixtures.ports import free_port
from tests.fixtures.servers import ServerThread, short_folder
from tests.road.harness import Road, folder, running, wait_until

DATABASE, BUS, TOKEN, OWNERS, CLOUD = (
    "LEAKdb#/@:é77",
    "LEAKbus#/@:é88",
    "LEAKtoken11",
    "LEAKowner22",
    "LEAKcloud33",
)
FEW = (
    *("--nodes", "3", "--pods", "12", "--speed", "30", "--report-interval", "1"),
    "--console",
)
LOGGED_IN = {"topology-store", "scheduler", "binder", "console"}
ON_THE_BUS = {"topology-store", "scheduler", "exporter-0"}


@contextlib.contextmanager
def servers() -> Iterator[ServerThread]:
    """Postgres by TCP and NATS, which both want a password."""
    postgres = PostgresSettings(
        shared_buffers_mb=64,
        durable=False,
        listen_addresses="127.0.0.1",
        password=DATABASE,
        port=free_port(),
    )
    with short_folder() as place:
        made = lambda: EmbeddedServers(  # noqa: E731
            place / "data", postgres_settings=postgres, nats_settings=NatsSettings(password=BUS)
        )
        thread = ServerThread(made)
        try:
            assert thread.servers.postgres is not None
            thread.servers.postgres.apply_password()
            yield thread
        finally:
            thread.close()


def database_url(outside: ServerThread, password: str) -> str:
    port = urlsplit(plain_url(outside.servers.database_url)).query.rpartition("port=")[2]
    return f"postgresql://postgres:{quote(password, safe='')}@127.0.0.1:{port}/topolog"


def bus_url(outside: ServerThread, password: str) -> str:
    port = urlsplit(outside.servers.nats_url).port
    return f"nats://topolog:{quote(password, safe='')}@127.0.0.1:{port}"


# Name of the process that runs a module.
SERVICES = {
    "services.topology_store": "topology-store",
    "services.scheduler": "scheduler",
    "services.binder": "binder",
    "services.exporter": "exporter-0",
    "services.simulator": "simulator",
    "services.console": "console",
}

CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
    "pg_backend_pid() AND backend_type = 'client backend'"
)


async def rotate(servers: EmbeddedServers, password: str) -> int:
    """Change the passwords of Postgres and NATS and cut all connections. Return how many
    connections to Postgres were cut.
    """
    assert servers.postgres is not None
    assert servers.nats is not None
    connection = await asyncpg.connect(plain_url(servers.database_url))
    try:
        await connection.execute(f"ALTER ROLE postgres PASSWORD '{password}'")
        cut = await connection.fetch(CUT)
    finally:
        await connection.close()
    servers.nats.take_passwords(password, "")
    await servers.reload_nats()
    return len(cut)


def forms(secret: str) -> set[bytes]:
    """Return the secret as itself and as in a URL."""
    return {secret.encode(), quote(secret, safe="").encode()}


def holds(data: bytes, secret: str) -> bool:
    return any(form in data for form in forms(secret))


def processes(road: Road) -> dict[str, tuple[bytes, bytes]]:
    """(environment, command line) of every process below `topolog up`, by the name of the child or
    of the program.
    """
    contents: dict[str, tuple[bytes, bytes]] = {}
    for child in psutil.Process(road.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            place, words = Path(f"/proc/{child.pid}"), child.cmdline()
            name = next(
                (SERVICES[word] for word in words if word in SERVICES),
                Path(words[0]).name if words else "",
            )
            contents_before = contents.get(name, (b"", b""))
            contents[name] = (
                contents_before[0] + (place / "environ").read_bytes(),
                contents_before[1] + (place / "cmdline").read_bytes(),
            )
    return contents


def who_has(processes: dict[str, tuple[bytes, bytes]], secret: str) -> set[str]:
    return {name for name, (environment, _) in processes.items() if holds(environment, secret)}


def files_with(path: Path, secret: str) -> set[str]:
    """Return files of a data folder that contain it, except the database's own, which hold the
    log.
    """
    files = [
        file
        for file in path.rglob("*")
        if file.is_file() and "postgres" not in file.relative_to(path).parts
    ]
    return {str(file.relative_to(path)) for file in files if holds(file.read_bytes(), secret)}


def told_by_services(road: Road) -> bytes:
    """Return metrics, state and readiness of every service, and the answers to a client without the
    token.
    """
    output = b""
    for name, port in road.services().items():
        for path in ("/metrics", "/state", "/readyz") if name != "simulator" else ("/metrics",):
            for headers in ({"Authorization": f"Bearer {TOKEN}"}, {}):
                with contextlib.suppress(OSError):
                    output += urlopen(
                        Request(f"http://127.0.0.1:{port}{path}", headers=headers), timeout=10
                    ).read()
    return output


async def rows(url: str) -> bytes:
    """Return every row of every table of the log."""
    connection = await asyncpg.connect(plain_url(url))
    try:
        tables = [
            row[0]
            for row in await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
        ]
        tables_rows = [await connection.fetch(f'SELECT * FROM "{table}"') for table in tables]
        assert sum(map(len, tables_rows)) > 50
        return b"\n".join(
            repr(tuple(row)).encode() + b"".join(_bytes(row))
            for rows in tables_rows
            for row in rows
        )
    finally:
        await connection.close()


def _bytes(row: asyncpg.Record) -> list[bytes]:
    return [value for value in row if isinstance(value, bytes)]


def ran(road: Road) -> int:
    return int(road.summary().get("workload", {}).get("to_running", {}).get("count", 0))


def has_run(road: Road, more_than: int = 3) -> None:
    wait_until(lambda: ran(road) > more_than, 90, "no pod ran", road.output)
    # The console starts last.
    wait_until(
        lambda: "console" in road.services() and road.get("console", "/livez"),
        30,
        "no console",
        road.output,
    )


def pids(road: Road) -> dict[str, int]:
    return {name: road.pid(name) for name in LOGGED_IN | ON_THE_BUS}


def test_secrets_of_outside_servers_reach_only_their_users() -> None:
    with servers() as outside, folder() as path:
        url = database_url(outside, DATABASE)
        secrets = {
            "TOPOLOG_DATABASE_URL": url,
            "TOPOLOG_NATS_URL": bus_url(outside, BUS),
            "TOPOLOG_HTTP_TOKEN": TOKEN,
            "TOPOLOG_POSTGRES_PASSWORD": OWNERS,
            "AWS_SECRET_ACCESS_KEY": CLOUD,
        }
        with running(path, *FEW, env=secrets) as road:
            has_run(road)
            running_processes = processes(road)
            output = told_by_services(road)
            assert road.stop() == 0
        assert {"simulator", *LOGGED_IN, *ON_THE_BUS} <= set(running_processes)
        assert who_has(running_processes, DATABASE) == LOGGED_IN
        assert who_has(running_processes, BUS) == ON_THE_BUS
        assert who_has(running_processes, TOKEN) == LOGGED_IN | ON_THE_BUS
        events = asyncio.run(rows(url))
        out = path.with_name(f"{path.name}.out").read_bytes()
        for secret in (DATABASE, BUS, TOKEN, OWNERS, CLOUD):
            assert files_with(path, secret) == set()
            assert not [
                name for name, (_, command) in running_processes.items() if holds(command, secret)
            ]
            assert not holds(output, secret)
            assert not holds(events, secret)
            assert not holds(out, secret)
        assert not who_has(running_processes, OWNERS) | who_has(running_processes, CLOUD)
        assert b"topolog_" in output
        assert (path / "logs" / "scheduler.log").stat().st_size


def test_the_password_that_a_run_makes_for_its_bus_stays_with_the_bus_and_the_services() -> None:
    with folder() as path:
        with running(path, *FEW, env={"TOPOLOG_HTTP_TOKEN": TOKEN}) as road:
            has_run(road)
            password = urlsplit(read_addresses(path).nats_url or "").password or ""
            url = read_addresses(path).database_url or ""
            contents, output, events = (
                processes(road),
                told_by_services(road),
                asyncio.run(rows(url)),
            )
        assert len(password) > 10
        # The exporter has its key, and the server its configuration.
        assert who_has(contents, password) == {"topology-store", "scheduler"}
        assert who_has(contents, TOKEN) == LOGGED_IN | ON_THE_BUS
        assert files_with(path, password) == {
            "addresses.json",
            "nats/address.json",
            "nats/nats.conf",
        }
        assert all((path / name).stat().st_mode & 0o077 == 0 for name in files_with(path, password))
        seeds = [
            file.read_text().split()[-1]
            for file in (path / "nats" / "credentials" / "seeds").iterdir()
        ]
        for secret in (*seeds, password, TOKEN):
            assert not [name for name, (_, command) in contents.items() if holds(command, secret)]
            assert not holds(output, secret)
            assert not holds(events, secret)
            assert not holds(path.with_name(f"{path.name}.out").read_bytes(), secret)
        for seed in seeds:
            assert not who_has(contents, seed)
            assert len(files_with(path, seed)) == 1


def test_secrets_in_files_are_in_no_environment_and_are_rotated_under_running_services() -> None:
    with servers() as outside, folder() as path:
        files = {
            variable: path.with_name(variable.lower())
            for variable in ("TOPOLOG_DATABASE_URL", "TOPOLOG_NATS_URL")
        }

        def write(database: str, bus: str) -> None:
            files["TOPOLOG_DATABASE_URL"].write_text(database_url(outside, database))
            files["TOPOLOG_NATS_URL"].write_text(bus_url(outside, bus))

        write(DATABASE, BUS)
        named = {f"{variable}_FILE": str(file) for variable, file in files.items()}
        endless = ("--nodes", "3", "--speed", "30", "--report-interval", "1", "--console")
        with running(path, *endless, env=named) as road:
            has_run(road)
            pids_before = pids(road)
            assert outside.run(rotate(outside.servers, "LEAKsecond")) > 3, (
                "every service had connections"
            )
            write("LEAKsecond", "LEAKsecond")
            has_run(road, more_than=ran(road) + 10)
            assert pids(road) == pids_before, "a service was started again"
            running_processes = processes(road)
            logs = b"".join(file.read_bytes() for file in (path / "logs").iterdir())
            out = path.with_name(f"{path.name}.out").read_bytes()
        for secret in (DATABASE, BUS, "LEAKsecond"):
            assert not who_has(running_processes, secret)
            assert not holds(logs, secret)
            assert not holds(out, secret)
            assert files_with(path, secret) == set()
