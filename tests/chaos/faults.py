"""Faults of a running Topolog: processes killed or paused, servers killed, paused, emptied or
without space, connections cut, refused and late, a primary demoted, an older log restored or
promoted.

A fault is over when `befall` returns. Must not know how services recover.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import asyncpg
import psutil

from shared.eventlog.postgres_connection import plain_url
from tests.chaos.proxy import Proxy
from tests.chaos.restoring import promote, restore
from tests.chaos.stage import Stage

PAUSE_S = (0.5, 12.0)
AWAY_S = (0.5, 8.0)
LATE_S = (0.02, 0.3)
FULL_S = (2.0, 10.0)

Fault = Callable[[Stage], Awaitable[str]]


async def kill_service(stage: Stage) -> str:
    """kill -9."""
    name = stage.rng.choice(_services(stage))
    await asyncio.to_thread(stage.road.kill, name)
    return name


async def pause_service(stage: Stage) -> str:
    """SIGSTOP, often for longer than its leases last, then SIGCONT."""
    name, pause_s = stage.rng.choice(_services(stage)), round(stage.rng.uniform(*PAUSE_S), 1)
    pid = await asyncio.to_thread(stage.road.pid, name)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(pause_s)
    os.kill(pid, signal.SIGCONT)
    return f"{name} for {pause_s} s"


async def kill_postgres(stage: Stage) -> str:
    """kill -9 of the server and all its processes, in the midst of whatever they commit."""
    server = _server("postgres")
    for process in [*server.children(recursive=True), server]:
        _kill(process)
    return f"pid {server.pid}"


async def kill_a_backend(stage: Stage) -> str:
    """kill -9 of one Postgres process: the server ends all sessions and recovers from its log."""
    backends = [
        child
        for child in _server("postgres").children()
        if "127.0.0.1" in " ".join(child.cmdline())
    ]
    if not backends:
        return "none was connected"
    backend = stage.rng.choice(backends)
    _kill(backend)
    return f"pid {backend.pid}"


async def kill_nats(stage: Stage) -> str:
    """kill -9."""
    server = _server("nats-server")
    _kill(server)
    return f"pid {server.pid}"


async def wipe_nats(stage: Stage) -> str:
    """Remove all streams and start the server again. Raises LookupError if there are no streams,
    because the last wipe was just before.
    """
    if not stage.streams.is_dir():
        raise LookupError("no streams are there")
    gone = Path(
        tempfile.mkdtemp(prefix="gone-", dir=stage.streams.parent)
    )  # a server may write while it dies: each its own
    stage.streams.rename(gone / "jetstream")
    _kill(_server("nats-server"))
    shutil.rmtree(gone, ignore_errors=True)
    return "streams gone"


def still(program: str) -> Fault:
    """Send SIGSTOP to the server and all its processes, then SIGCONT: connections stay open without
    an answer.
    """

    async def befall(stage: Stage) -> str:
        server, still_s = _server(program), round(stage.rng.uniform(*PAUSE_S), 1)
        processes = [server, *server.children(recursive=True)]
        _signal(processes, signal.SIGSTOP)
        try:
            await asyncio.sleep(still_s)
        finally:
            _signal(processes, signal.SIGCONT)
        return f"for {still_s} s"

    return befall


def cut(which: str) -> Fault:
    """Cut every connection to this server at once."""

    async def befall(stage: Stage) -> str:
        return f"{getattr(stage, which).cut()} connections"

    return befall


def away(which: str) -> Fault:
    """Make the server unreachable for a while."""

    async def befall(stage: Stage) -> str:
        proxy: Proxy = getattr(stage, which)
        away_s = round(stage.rng.uniform(*AWAY_S), 1)
        proxy.away = True
        proxy.cut()
        await asyncio.sleep(away_s)
        proxy.away = False
        return f"for {away_s} s"

    return befall


def late(which: str) -> Fault:
    """Delay every chunk to and from the server for a while."""

    async def befall(stage: Stage) -> str:
        proxy: Proxy = getattr(stage, which)
        proxy.delay_s = round(stage.rng.uniform(*LATE_S), 2)
        description = f"{proxy.delay_s} s a chunk for 5 s"
        await asyncio.sleep(5)
        proxy.delay_s = 0.0
        return description

    return befall


async def demote(stage: Stage) -> str:
    """Let the server refuse writes and keep its connections for a while, as managed databases do
    that promote another server.
    """
    away_s = round(stage.rng.uniform(*AWAY_S), 1)
    operator = await asyncpg.connect(
        plain_url(stage.database_url), server_settings={"default_transaction_read_only": "off"}
    )
    try:
        await operator.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await operator.execute("SELECT pg_reload_conf()")
        await asyncio.sleep(away_s)
    finally:
        await operator.execute("ALTER SYSTEM RESET default_transaction_read_only")
        await operator.execute("SELECT pg_reload_conf()")
        await operator.close()
    return f"for {away_s} s"


def full(which: str) -> Fault:
    """Fill the server's disk for a while."""

    async def befall(stage: Stage) -> str:
        full_s = round(stage.rng.uniform(*FULL_S), 1)
        used_bytes = await asyncio.to_thread(stage.disks[which].fill)
        await asyncio.sleep(full_s)
        await asyncio.to_thread(stage.disks[which].free)
        return f"at {used_bytes / 1e6:.0f} MB for {full_s} s"

    return befall


FAULTS: dict[str, Fault] = {
    "kill a service": kill_service,
    "pause a service": pause_service,
    "kill postgres": kill_postgres,
    "kill a postgres backend": kill_a_backend,
    "kill nats": kill_nats,
    "wipe nats": wipe_nats,
    "postgres stands still": still("postgres"),
    "nats stands still": still("nats-server"),
    "cut postgres": cut("postgres"),
    "cut nats": cut("nats"),
    "postgres away": away("postgres"),
    "nats away": away("nats"),
    "postgres late": late("postgres"),
    "nats late": late("nats"),
    "postgres demoted": demote,
    "older log restored": restore,
    "replica promoted": promote,
    "disk full under postgres": full("postgres"),
    "disk full under nats": full("nats"),
}
# Faults that need a private mount namespace.
ON_DISKS = frozenset(name for name in FAULTS if name.startswith("disk"))


def _services(stage: Stage) -> list[str]:
    """Return the processes that are no servers: both of each service, the exporters, and the
    simulated cluster.
    """
    return sorted(stage.road.services())


def _server(program: str) -> psutil.Process:
    """Return the server, a child of this process. Raises LookupError while it is being
    restarted.
    """
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.name() == program and child.status() != psutil.STATUS_ZOMBIE:
                return child
    raise LookupError(f"no {program} runs")


def _signal(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _kill(process: psutil.Process) -> None:
    _signal([process], signal.SIGKILL)
