"""What may befall a running Topolog: processes killed or paused, servers killed or emptied, connections cut, refused and late.

A fault comes and is over when `befall` returns. Must not know how anybody recovers.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import psutil

from tests.chaos.proxy import Proxy
from tests.road.harness import Road

SERVICES = ("scheduler", "binder", "topology-store", "exporter-0", "simulator")
PAUSE_S = (0.5, 12.0)
AWAY_S = (0.5, 8.0)
LATE_S = (0.02, 0.3)


class Stage(msgspec.Struct):
    """What faults can reach: the road, its servers (children of this process), their folder, and the proxies ahead of them."""

    road: Road
    servers: Path
    postgres: Proxy
    nats: Proxy
    rng: random.Random


Fault = Callable[[Stage], Awaitable[str]]


async def kill_service(stage: Stage) -> str:
    """kill -9."""
    name = stage.rng.choice(SERVICES)
    await asyncio.to_thread(stage.road.kill, name)
    return name


async def pause_service(stage: Stage) -> str:
    """SIGSTOP, often for longer than its leases last, then SIGCONT."""
    name, pause_s = stage.rng.choice(SERVICES[:4]), round(stage.rng.uniform(*PAUSE_S), 1)
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
    backends = [child for child in _server("postgres").children() if "127.0.0.1" in " ".join(child.cmdline())]
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
    """All streams are gone, and the server starts anew."""
    store = stage.servers / "nats" / "jetstream"
    gone = store.with_name("jetstream.gone")
    store.rename(gone)
    _kill(_server("nats-server"))
    shutil.rmtree(gone, ignore_errors=True)
    return "streams gone"


def cut(which: str) -> Fault:
    """Every connection to this server is cut at once."""

    async def befall(stage: Stage) -> str:
        return f"{getattr(stage, which).cut()} connections"

    return befall


def away(which: str) -> Fault:
    """The server cannot be reached for a while."""

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
    """Every chunk to and from the server is late for a while."""

    async def befall(stage: Stage) -> str:
        proxy: Proxy = getattr(stage, which)
        proxy.delay_s = round(stage.rng.uniform(*LATE_S), 2)
        told = f"{proxy.delay_s} s a chunk for 5 s"
        await asyncio.sleep(5)
        proxy.delay_s = 0.0
        return told

    return befall


FAULTS: dict[str, Fault] = {
    "kill a service": kill_service,
    "pause a service": pause_service,
    "kill postgres": kill_postgres,
    "kill a postgres backend": kill_a_backend,
    "kill nats": kill_nats,
    "wipe nats": wipe_nats,
    "cut postgres": cut("postgres"),
    "cut nats": cut("nats"),
    "postgres away": away("postgres"),
    "nats away": away("nats"),
    "postgres late": late("postgres"),
    "nats late": late("nats"),
}


def _server(program: str) -> psutil.Process:
    """The server that is a child of this process. Raises LookupError while it is being started again."""
    for child in psutil.Process().children(recursive=True):
        try:
            command = child.cmdline()
            if command and Path(command[0]).name == program and child.ppid() and "up" not in command:
                parent = child.parent()
                if parent is None or Path((parent.cmdline() or [""])[0]).name != program:
                    return child
        except psutil.Error:
            continue
    raise LookupError(f"no {program} runs")


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
