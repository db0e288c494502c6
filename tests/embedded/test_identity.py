"""The account of Postgres: root uses a service account or a user namespace, others themselves."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from services.embedded import identity as identity_module
from services.embedded.binaries import PostgresBinaries, find_postgres
from services.embedded.child import (
    AccountIdentity,
    Identity,
    PlainIdentity,
    ReachingAccountIdentity,
    UserNamespaceIdentity,
)
from services.embedded.errors import ServerBinaryError
from services.embedded.identity import choose_identity
from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers
from services.embedded.spawn import launched, run_tool
from tests.fixtures.servers import short_folder

SMALL = PostgresSettings(shared_buffers_mb=32, max_connections=20)
AS_ROOT = os.geteuid() == 0
ROOT = Path(__file__).resolve().parents[2]
NOBODY = AccountIdentity("nobody", 65534, 65534)
NOBODY_REACHING = ReachingAccountIdentity("nobody", 65534, 65534)
NOBODY_INSIDE = UserNamespaceIdentity("nobody", 65534, 65534)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


def allowed(identity: Identity, *argv: str) -> bool:
    """Return whether this machine can run `argv` with that identity (root in a container may have
    no user namespaces).
    """
    try:
        run_tool(argv, identity)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@pytest.mark.parametrize("enclosing_mode", [0o711, 0o700])
async def test_postgres_runs_whether_or_not_others_may_enter_the_folder(
    folder: Path, enclosing_mode: int
) -> None:
    folder.chmod(enclosing_mode)
    servers = EmbeddedServers(folder / "data", want_nats=False, postgres_settings=SMALL)
    hidden = AS_ROOT and enclosing_mode == 0o700
    if (
        hidden
        and not allowed(NOBODY_INSIDE, "/bin/true")
        and not allowed(NOBODY_REACHING, "/bin/true")
    ):
        with pytest.raises(ServerBinaryError, match="Run as a normal user"):
            await servers.start()
        return
    for _ in range(2):
        assert isinstance(await runs_and_answers(folder / "data"), expected_identity(hidden))


async def runs_and_answers(data_dir: Path) -> object:
    """Start, query, stop; return the server's identity."""
    async with EmbeddedServers(data_dir, want_nats=False, postgres_settings=SMALL) as servers:
        connection = await asyncpg.connect(servers.database_url.replace("+asyncpg", ""))
        assert await connection.fetchval("select 1") == 1
        await connection.close()
        return servers.supervisor.child("postgres").spec.identity


async def test_where_namespaces_are_refused_root_still_runs_in_a_closed_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o700)
    works = identity_module._works
    monkeypatch.setattr(
        identity_module,
        "_works",
        lambda binaries, who: not isinstance(who, UserNamespaceIdentity) and works(binaries, who),
    )
    if AS_ROOT and not allowed(NOBODY_REACHING, "/bin/true"):
        with pytest.raises(ServerBinaryError, match="Run as a normal user"):
            await runs_and_answers(folder / "data")
        return
    for _ in range(2):
        identity = await runs_and_answers(folder / "data")
        assert isinstance(identity, ReachingAccountIdentity if AS_ROOT else PlainIdentity)


def test_no_identity_outlives_the_supervisor_that_started_it(folder: Path) -> None:
    """Linux forgets the parent-death signal when credentials change: each identity must set it
    after.
    """
    for identity in (PlainIdentity(), NOBODY, NOBODY_INSIDE, NOBODY_REACHING):
        if not isinstance(identity, PlainIdentity) and not (
            AS_ROOT and allowed(identity, "/bin/true")
        ):
            continue
        reading, writing = os.pipe()
        parent = os.fork()
        if parent == 0:
            os.close(reading)
            subprocess.Popen(
                launched(["/bin/sleep", "60"], identity, signal.SIGTERM), pass_fds=[writing]
            )
            os._exit(0)
        os.close(writing)
        os.waitpid(parent, 0)
        with os.fdopen(reading) as pipe:
            assert pipe.read() == "", (
                "end of file comes only when the child, which holds the other end, is gone"
            )


def test_hooks_that_start_threads_in_a_fork_do_not_keep_a_child_from_its_identity() -> None:
    """gRPC and OpenTelemetry have such hooks, and Linux lets no process with threads enter a user
    namespace.
    """
    if not (AS_ROOT and allowed(NOBODY_INSIDE, "/bin/true")):
        return
    code = (
        "import os, threading, time\n"
        "hook = lambda: threading.Thread(target=time.sleep, args=(1,)).start()\n"
        "os.register_at_fork(after_in_child=hook)\n"
        "from tests.embedded.test_identity import NOBODY_INSIDE, run_tool\n"
        "print(run_tool(('/bin/echo', 'here'), NOBODY_INSIDE))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "here", done.stderr


def expected_identity(hidden: bool) -> type:
    if not AS_ROOT:
        return PlainIdentity
    if not hidden:
        return AccountIdentity
    return UserNamespaceIdentity if allowed(NOBODY_INSIDE, "/bin/true") else ReachingAccountIdentity


def test_the_owner_of_existing_data_keeps_it(folder: Path) -> None:
    cluster = folder / "postgres"
    cluster.mkdir(mode=0o700)
    chosen = choose_identity(find_postgres(), folder, cluster)
    assert (
        not AS_ROOT
        or not allowed(NOBODY_INSIDE, "/bin/true")
        or isinstance(chosen, UserNamespaceIdentity)
    )
    if AS_ROOT:
        os.chown(cluster, NOBODY.uid, NOBODY.gid)
        assert choose_identity(find_postgres(), folder, cluster) == NOBODY


def test_root_without_any_way_gets_a_clear_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    unreachable = PostgresBinaries(folder / "no-such-folder", 18)
    with pytest.raises(ServerBinaryError, match=r"does not run as root.*TOPOLOG_DATABASE_URL"):
        choose_identity(unreachable, folder, folder / "postgres")


def test_root_does_not_widen_a_folder_that_the_account_cannot_reach_anyway(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o700)
    inside = folder / "data"
    inside.mkdir(mode=0o700)
    monkeypatch.setattr(
        identity_module, "_works", lambda _binaries, identity: isinstance(identity, AccountIdentity)
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ServerBinaryError):
        choose_identity(find_postgres(), inside, inside / "postgres")
    assert inside.stat().st_mode & 0o777 == 0o700


RUN_BOTH = """
import asyncio, os, sys
from pathlib import Path
from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers

async def main() -> None:
    assert os.geteuid() != 0
    small = PostgresSettings(shared_buffers_mb=32)
    async with EmbeddedServers(Path(sys.argv[1]), postgres_settings=small) as servers:
        print(servers.supervisor.child("postgres").spec.identity, servers.database_url)

asyncio.run(main())
"""


def test_both_servers_run_for_an_unprivileged_user_from_any_folder(folder: Path) -> None:
    """Root uses the account `nobody` if that account can read this Python, or else a user namespace
    without privileges.
    """
    identity: Identity = PlainIdentity()
    if AS_ROOT:
        identity = NOBODY if allowed(NOBODY, sys.executable, "--version") else NOBODY_INSIDE
    if isinstance(identity, UserNamespaceIdentity) and not allowed(
        identity, sys.executable, "--version"
    ):
        assert not allowed(NOBODY, sys.executable, "--version")
        return
    if isinstance(identity, AccountIdentity):
        os.chown(folder, identity.uid, identity.gid)
    done = subprocess.run(
        launched([sys.executable, "-c", RUN_BOTH, str(folder / "data")], identity, signal.SIGKILL),
        env={"PYTHONPATH": str(ROOT), "HOME": str(folder), "PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PlainIdentity()")
    assert (folder / "data" / "postgres" / "PG_VERSION").exists()
