"""A child process dumps a large state, and the service goes on: what is kept is the state of the
checkpoint's place, and no crash of either process damages the checkpoint before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from shared.eventlog.checkpoints import Form, nearest_checkpoint
from shared.eventlog.port import EventLog
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.runtime import checkpointing, marks
from shared.runtime import projector as projectors
from shared.runtime.child import LARGE, Child
from shared.runtime.health import Health
from shared.runtime.marks import Marks, Promises
from shared.runtime.projector import Fold, Projector
from tests.eventlog.words import given, place
from tests.runtime.helpers import QUICK, FaultyLog, running, until

State = dict[str, int]
ROOT = Path(__file__).parents[2]
# A process that has a connection, and a child that computes until a file exists.
PARENT = """
import asyncio, socket, sys, time
from pathlib import Path
from shared.runtime.child import Child

def compute():
    Path(sys.argv[2]).touch()
    for _ in range(6000):  # a child that nothing ends must not stay
        if Path(sys.argv[3]).exists():
            break
        time.sleep(0.01)
    return b"x" * 1_000_000

async def kept(result):
    pass

async def main():
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    await Child().begin(compute, kept)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projectors, "EVERY", 5)
    monkeypatch.setattr(checkpointing, "EVERY", 5)
    monkeypatch.setattr(checkpointing, "MOST_DOUBLINGS", 0)
    monkeypatch.setattr(checkpointing, "DOUBLINGS_IN_REPLAY", 0)
    monkeypatch.setattr(marks, "EVERY_FACTS", 4)
    monkeypatch.setattr(marks, "EVERY_WEIGHT", LARGE + 1)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file without which children do not end."""
    path = tmp_path / "gate"
    yield path
    path.touch()


def evolve(state: State, envelope: Envelope, _event: Event) -> None:
    """Fold so that a missed, repeated or misplaced event changes the state."""
    state[envelope.stream] = (state.get(envelope.stream, 0) * 31 + envelope.position) % 1_000_003


async def plain(log: EventLog, head: int) -> State:
    state: State = {}
    for envelope in await log.read(0, head):
        evolve(state, envelope, None)  # type: ignore[arg-type]
    return state


def large(gate: Path, own: int, code: str = "f") -> Fold[State]:
    """Return a fold that is large, and whose children wait for the gate."""

    def passed(state: State) -> State:
        while os.getpid() != own and not gate.exists():
            time.sleep(0.01)
        return state

    return Fold(
        dict,
        evolve,
        code,
        lambda state: msgspec.json.encode(passed(state)),
        lambda dumped: msgspec.json.decode(dumped, type=State),
        promises=Promises(lambda state: [msgspec.json.encode(passed(state))], lambda _: LARGE),
        form=Form(),
        weight=lambda _: LARGE,
    )


async def test_events_are_folded_while_a_child_dumps_the_state_before_them(gate: Path) -> None:
    log, fold = FaultyLog(), large(gate, os.getpid())
    projector = Projector("p", log, fold, options=QUICK)
    async with running(projector.run()):
        await projector.wait_live()
        await given(log, *"abcdeab")
        assert await projector.wait_for(7, 60), "beyond a mark at 4 and a checkpoint at 5"
        assert await nearest_checkpoint(log, "p", Form()) is None
        assert await log.marks("p") == []
        gate.touch()
        await until(lambda: len(log._marks) == len(log._snapshots) == 1)
    checkpoint = await nearest_checkpoint(log, "p", Form())
    assert checkpoint is not None
    assert checkpoint.place.position == 5
    assert msgspec.json.decode(checkpoint.state, type=State) == await plain(log, 5)
    again = Projector("p", log, fold, options=QUICK)
    async with running(again.run()):
        assert await again.wait_for(7, 60)
        assert again.state == projector.state == await plain(log, 7)


async def test_a_child_makes_the_same_mark(gate: Path) -> None:
    gate.touch()
    log, promises, health = FaultyLog(), large(gate, os.getpid()).promises, Health()
    assert promises is not None
    made = Marks("p", "f", promises, log, health)
    await given(log, *"abcd")
    state, at_four = await plain(log, 4), await place(log, 4)
    await made.make(state, at_four, live=True)
    await until(lambda: len(log._marks) == 1)
    await made.make(state, at_four, live=False)
    assert not health.status().red
    state["a"] += 1
    await made.make(state, at_four, live=True)
    await until(lambda: bool(health.status().red))


@pytest.mark.parametrize("ends", ["killed", "cancelled", "reset"])
async def test_the_checkpoint_before_stays_if_a_child_ends_early(gate: Path, ends: str) -> None:
    log, fold = FaultyLog(), replace(large(gate, os.getpid()), promises=None)
    gate.touch()
    projector = Projector("p", log, fold, options=QUICK)
    async with running(projector.run()):
        await given(log, *"abcde")
        await until(lambda: len(log._snapshots) == 1)
        gate.unlink()
        await given(log, *"vwxyzv")
        assert await projector.wait_for(11, 60)
        assert projector._checkpoints is not None
        child = psutil.Process(projector._checkpoints._child._pid)
        if ends == "killed":
            child.kill()
            gate.touch()
            await projector._checkpoints.finished()
            assert not projector._health.status().red
        elif ends == "reset":
            log.restore(9)
            await until(lambda: not child.is_running())
            gate.touch()
    await until(lambda: not child.is_running())
    checkpoint = await nearest_checkpoint(log, "p", Form())
    assert checkpoint is not None
    assert checkpoint.place.position == 5


async def test_a_child_holds_no_connection_of_a_killed_process_and_ends(tmp_path: Path) -> None:
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [sys.executable, "-c", PARENT, str(port), str(begun), str(gate)]
        parent = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        connection, _ = server.accept()
        await until(begun.exists)
        (child,) = psutil.Process(parent.pid).children()
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
        with connection:
            connection.settimeout(20)
            assert connection.recv(1) == b"", "the child holds the connection"
        assert child.is_running()
        gate.touch()
        await until(lambda: not child.is_running())


async def test_a_child_that_fails_has_no_result() -> None:
    def failing() -> bytes:
        raise MemoryError

    results: list[bytes | None] = []

    async def then(result: bytes | None) -> None:
        results.append(result)

    child = Child()
    await child.begin(failing, then)
    await child.begin(lambda: b"x" * (1 << 20), then)
    await child.finished()
    assert results == [None, b"x" * (1 << 20)]
