"""Embedded Postgres and NATS as real servers: start, stop, resume, fail and return at the same
address.
"""

import asyncio
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import asyncpg
import nats
import pytest

from services.embedded.child import ChildEvent, ChildEventKind, Identity, PlainIdentity
from services.embedded.data_dir import DataDir, read_addresses
from services.embedded.errors import DataFolderError, PortInUseError, ServerBinaryError
from services.embedded.nats import STREAMS_BYTES, EmbeddedNats, NatsSettings
from services.embedded.postgres import EmbeddedPostgres, PostgresSettings, socket_dir_for
from services.embedded.servers import EmbeddedServers
from services.embedded.spawn import launched
from shared.bus.jetstream import JetStreamBus
from tests.fixtures.servers import short_folder

SMALL = PostgresSettings(shared_buffers_mb=32, max_connections=20)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path / "data"


def postgres_only(folder: Path, **options: object) -> EmbeddedServers:
    return EmbeddedServers(folder, want_nats=False, postgres_settings=SMALL, **options)  # type: ignore[arg-type]


async def query(url: str, sql: str) -> object:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_both_servers_start_and_data_is_there_after_a_second_start(folder: Path) -> None:
    async with EmbeddedServers(folder, postgres_settings=SMALL) as servers:
        first_urls = (servers.database_url, servers.nats_url)
        await query(servers.database_url, "create table kept as select 42 as n")
        client = await nats.connect(servers.nats_url)
        await client.jetstream().add_stream(name="kept", subjects=["kept"])
        await client.jetstream().publish("kept", b"x")
        await client.close()
        assert set(servers.ready_after_s) == {"postgres", "nats"}
    async with EmbeddedServers(folder, postgres_settings=SMALL) as servers:
        assert (servers.database_url, servers.nats_url) == first_urls
        assert await query(servers.database_url, "select n from kept") == 42
        client = await nats.connect(servers.nats_url)
        assert (await client.jetstream().stream_info("kept")).state.messages == 1
        await client.close()


async def test_durability_is_on_unless_a_test_asks_otherwise(folder: Path) -> None:
    async with postgres_only(folder) as servers:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await query(servers.database_url, f"show {setting}") == "on"
        assert await query(servers.database_url, "show listen_addresses") == ""


async def test_postgres_killed_hard_comes_back_at_the_same_address(folder: Path) -> None:
    events: list[ChildEvent] = []
    async with postgres_only(folder, on_event=events.append) as servers:
        await query(servers.database_url, "create table kept as select 42 as n")
        child = servers.supervisor.child("postgres")
        for _ in range(2):
            killed = child.pid
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            await until_dead(events, killed)
            await child.wait_ready()
            assert child.pid != killed
            assert await query(servers.database_url, "select n from kept") == 42
    kinds = [event.kind for event in events]
    assert kinds[:5] == ["started", "ready", "died", "restarted", kinds[4]]
    assert kinds[-1] == ChildEventKind.STOPPED
    assert events[-1].exit_code == 0


async def test_nats_killed_hard_comes_back_and_its_client_reconnects(folder: Path) -> None:
    events: list[ChildEvent] = []
    async with EmbeddedServers(folder, want_postgres=False, on_event=events.append) as servers:
        client = await nats.connect(
            servers.nats_url, max_reconnect_attempts=-1, reconnect_time_wait=0.05
        )
        stream = client.jetstream()
        await stream.add_stream(name="kept", subjects=["kept"])
        await stream.publish("kept", b"before")
        child = servers.supervisor.child("nats")
        assert child.pid is not None
        killed = child.pid
        os.kill(killed, signal.SIGKILL)
        await until_dead(events, killed)
        await child.wait_ready()
        await until(lambda: client.is_connected)
        assert (await stream.publish("kept", b"after")).seq == 2
        await client.close()


async def until_dead(events: list[ChildEvent], pid: int) -> None:
    await until(
        lambda: any(event.kind == ChildEventKind.DIED and event.pid == pid for event in events)
    )


async def until(condition: Callable[[], object]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited 30 s in vain")


def start(argv: Sequence[str], identity: Identity) -> subprocess.Popen[str]:
    command = launched(argv, identity, signal.SIGKILL)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


async def test_a_stale_pid_file_does_not_stop_a_start(folder: Path) -> None:
    async with postgres_only(folder) as servers:
        await query(servers.database_url, "create table kept as select 42 as n")
    dead = start(["true"], PlainIdentity())
    dead.wait()
    pid_file = folder / "postgres" / "postmaster.pid"
    for content in ("", "not a number\n", f"{dead.pid}\n", f"{os.getpid()}\n", f"{os.getpid()}"):
        pid_file.write_text(content)
        own_as(pid_file, folder / "postgres")
        async with postgres_only(folder) as servers:
            assert await query(servers.database_url, "select n from kept") == 42, content


def own_as(path: Path, like: Path) -> None:
    path.chmod(0o600)
    os.chown(path, like.stat().st_uid, like.stat().st_gid)


async def test_a_postmaster_left_by_a_killed_supervisor_is_stopped_first(folder: Path) -> None:
    async with postgres_only(folder) as servers:
        spec = servers.supervisor.child("postgres").spec
    leftover = start(spec.argv, spec.identity)
    await until((folder / "postgres" / "postmaster.pid").exists)
    reaper = asyncio.create_task(asyncio.to_thread(leftover.wait))
    async with postgres_only(folder) as servers:
        assert servers.supervisor.child("postgres").pid != leftover.pid
        assert await query(servers.database_url, "select 1") == 1
    assert await reaper == 0


async def test_a_half_made_database_is_made_again(folder: Path) -> None:
    draft = folder / "postgres.new"
    with DataDir(folder):
        draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")
    async with postgres_only(folder) as servers:
        assert await query(servers.database_url, "select 1") == 1
    assert not draft.exists()


async def test_a_volume_that_a_kubelet_opened_to_its_group_is_closed_again(folder: Path) -> None:
    """With `fsGroup` a mount changes every file to 0660 and every folder to 2770, and Postgres
    refuses such a folder.
    """
    async with postgres_only(folder) as servers:
        await query(servers.database_url, "create table kept as select 42 as n")
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o2770 if path.is_dir() else 0o660))
    async with postgres_only(folder) as servers:
        assert await query(servers.database_url, "select n from kept") == 42
    assert (folder / "postgres").stat().st_mode & 0o7777 == 0o700


async def test_two_data_folders_run_side_by_side(folder: Path) -> None:
    second = folder.with_name("other")
    async with (
        EmbeddedServers(folder, postgres_settings=SMALL) as printed_entry,
        EmbeddedServers(second, postgres_settings=SMALL) as two,
    ):
        assert printed_entry.database_url != two.database_url
        assert printed_entry.nats_url != two.nats_url
        await query(printed_entry.database_url, "create table only_here (n int)")
        assert await query(two.database_url, "select to_regclass('only_here')") is None


async def test_a_folder_in_use_is_refused_and_named(folder: Path) -> None:
    with (
        DataDir(folder),
        pytest.raises(
            DataFolderError, match=f"{folder} is in use.*process {os.getpid()}.*--data-dir"
        ),
    ):
        await EmbeddedServers(folder).start()


async def test_a_folder_of_another_postgres_is_refused_with_a_remedy(folder: Path) -> None:
    folder.mkdir()
    (folder / "VERSION").write_text(json.dumps({"layout": 1, "postgres": 13}))
    with pytest.raises(DataFolderError, match=r"has a Postgres 13 database.*mv "):
        await postgres_only(folder).start()


@pytest.mark.parametrize(
    ("stamp", "words"),
    [
        ('{"layout": 99}', "layout 99"),
        ("not json", "version stamp"),
        ('{"layout": "x"}', "version stamp"),
    ],
)
async def test_a_folder_of_another_layout_is_refused_with_a_remedy(
    folder: Path, stamp: str, words: str
) -> None:
    folder.mkdir()
    (folder / "VERSION").write_text(stamp)
    with pytest.raises(DataFolderError, match=rf"{words}.*--data-dir"):
        await postgres_only(folder).start()
    DataDir(folder).close()


async def test_a_folder_that_holds_other_things_is_refused_and_left_as_it_is(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    (folder / "letters").mkdir()
    mode = folder.stat().st_mode
    with pytest.raises(DataFolderError, match=r"has other contents.*letters.*--data-dir"):
        await postgres_only(folder).start()
    assert folder.stat().st_mode == mode
    assert [entry.name for entry in folder.iterdir()] == ["letters"]


async def test_a_file_in_place_of_the_folder_is_refused(folder: Path) -> None:
    folder.write_text("")
    with pytest.raises(DataFolderError, match="cannot be used"):
        await postgres_only(folder).start()


async def test_a_wanted_nats_port_in_use_is_refused_and_nothing_is_left_running(
    folder: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        servers = EmbeddedServers(
            folder, postgres_settings=SMALL, nats_settings=NatsSettings(port=port)
        )
        with pytest.raises(PortInUseError, match=f"port {port}"):
            await servers.start()
    assert servers.supervisor.names == ()
    with DataDir(folder):
        assert (folder / "postgres" / "PG_VERSION").exists(), (
            "initdb is waited for, or it would go on in a released folder"
        )


async def test_a_remembered_nats_port_in_use_is_replaced(folder: Path) -> None:
    async with EmbeddedServers(folder, want_postgres=False) as servers:
        first = servers.nats_url
    with socket.create_server(("127.0.0.1", int(first.rpartition(":")[2]))):
        async with EmbeddedServers(folder, want_postgres=False) as servers:
            assert servers.nats_url != first


async def test_nats_refuses_a_client_without_the_password(folder: Path) -> None:
    async with EmbeddedServers(folder, want_postgres=False) as servers:
        bare = "nats://" + servers.nats_url.rpartition("@")[2]
        with pytest.raises(nats.errors.Error, match="Authorization"):
            await nats.connect(bare, allow_reconnect=False, error_cb=ignore)


async def ignore(_error: Exception) -> None: ...


async def test_a_long_folder_gets_a_short_socket_path(folder: Path) -> None:
    long = folder / ("x" * 60) / ("y" * 60)
    assert len(str(socket_dir_for(long))) < 60
    async with postgres_only(long) as servers:
        assert await query(servers.database_url, "select 1") == 1
        assert socket_dir_for(long).stat().st_mode & 0o077 == 0
    assert not socket_dir_for(long).exists()


async def test_addresses_are_left_for_other_programs_readable_by_the_owner_only(
    folder: Path,
) -> None:
    async with EmbeddedServers(folder, want_postgres=False) as servers:
        assert read_addresses(folder).nats_url == servers.nats_url
        assert (folder / "addresses.json").stat().st_mode & 0o077 == 0


SUPERVISE = """
import asyncio, sys
from pathlib import Path
from services.embedded.nats import NatsSettings
from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers

async def main() -> None:
    small = PostgresSettings(shared_buffers_mb=32)
    async with EmbeddedServers(Path(sys.argv[1]), postgres_settings=small) as servers:
        print(*(servers.supervisor.child(name).pid for name in ("postgres", "nats")), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_disk_too_small_for_the_streams_is_reported_before_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise everything would be ready except the topology-store, because JetStream refuses its
    streams.
    """
    usage = shutil.disk_usage(folder.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=STREAMS_BYTES - 1))
    with pytest.raises(DataFolderError, match=r"383 MiB free.*up to 384 MiB.*--data-dir"):
        await EmbeddedServers(folder, want_postgres=False).start()
    value = folder / "nats" / "jetstream" / "block"
    value.parent.mkdir(parents=True)
    value.write_bytes(b"x")
    async with EmbeddedServers(folder, want_postgres=False) as servers:
        bus = JetStreamBus(servers.nats_url)
        await bus.ensure_streams()
        await bus.close()


async def test_a_full_disk_that_stops_both_servers_is_reported_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server fails while its start is being cancelled; its error is not reported a second
    time.
    """
    refused = threading.Event()

    def prepare_nats(_nats: EmbeddedNats) -> None:
        refused.set()
        raise DataFolderError("too small for the streams", "free some")

    def prepare_postgres(_postgres: EmbeddedPostgres) -> None:
        refused.wait()
        time.sleep(0.2)
        raise ServerBinaryError("no space left for a database", "free some")

    monkeypatch.setattr(EmbeddedNats, "prepare", prepare_nats)
    monkeypatch.setattr(EmbeddedPostgres, "prepare", prepare_postgres)
    printed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: printed.append(context))
    with pytest.raises(DataFolderError, match="too small for the streams"):
        await EmbeddedServers(folder, postgres_settings=SMALL).start()
    gc.collect()
    await asyncio.sleep(0)
    assert printed == []


async def test_a_supervisor_killed_hard_leaves_no_orphans_and_the_next_one_resumes(
    folder: Path,
) -> None:
    supervisor = start([sys.executable, "-c", SUPERVISE, str(folder)], PlainIdentity())
    assert supervisor.stdout is not None
    pids = [int(word) for word in (await asyncio.to_thread(supervisor.stdout.readline)).split()]
    assert len(pids) == 2
    supervisor.kill()
    supervisor.wait()
    await until(lambda: not any(runs(pid) for pid in pids))
    async with EmbeddedServers(folder, postgres_settings=SMALL) as servers:
        assert await query(servers.database_url, "select 1") == 1


def runs(pid: int) -> bool:
    """Return whether the process runs: it has neither ended nor become a zombie."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
