"""The supervisor with small real processes: order, readiness, restarts, giving up, stopping."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from services.embedded import launch
from services.embedded.child import (
    AccountIdentity,
    ChildEvent,
    ChildEventKind,
    ChildSpec,
    FileReady,
    HttpReady,
    PlainIdentity,
    Ready,
    RestartPolicy,
    TcpReady,
)
from services.embedded.errors import ChildFailedError, EmbeddedError, PortInUseError
from services.embedded.ports import port_is_free
from services.embedded.spawn import run_tool
from services.embedded.supervisor import Supervisor, dependency_layers
from tests.fixtures.ports import free_port

QUICK = RestartPolicy(
    first_delay_s=0.01, max_delay_s=0.02, healthy_after_s=30, start_attempts=2, max_failures=3
)
# No account is -1: for root setgid(2) refuses it as invalid, and other users may not call
# setgroups(2).
IMPOSSIBLE = AccountIdentity("nobody", -1, -1)
TOUCH_AND_WAIT = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"


def spec(
    folder: Path,
    name: str,
    *depends_on: str,
    code: str = TOUCH_AND_WAIT,
    ready: Ready | None = None,
    ready_timeout_s: float = 20,
    stop_grace_s: float = 10,
    ports: tuple[int, ...] = (),
) -> ChildSpec:
    mark = folder / f"{name}.ready"
    return ChildSpec(
        name=name,
        argv=(sys.executable, "-c", code, str(mark)),
        ready=ready or FileReady(mark),
        log_path=folder / f"{name}.log",
        depends_on=depends_on,
        restart=QUICK,
        ready_timeout_s=ready_timeout_s,
        stop_grace_s=stop_grace_s,
        ports=ports,
    )


def order(events: list[ChildEvent], kind: ChildEventKind) -> list[str]:
    return [event.name for event in events if event.kind == kind]


async def test_dependencies_are_ready_first_and_stopped_last(tmp_path: Path) -> None:
    events: list[ChildEvent] = []
    supervisor = Supervisor(events.append)
    await supervisor.start(
        [spec(tmp_path, "c", "b"), spec(tmp_path, "b", "a"), spec(tmp_path, "a")]
    )
    await supervisor.start([spec(tmp_path, "late", "c")])
    assert supervisor.names == ("c", "b", "a", "late")
    await supervisor.stop()
    kinds_and_names = [(event.kind, event.name) for event in events]
    for earlier, later in (("a", "b"), ("b", "c"), ("c", "late")):
        ready = kinds_and_names.index((ChildEventKind.READY, earlier))
        assert ready < kinds_and_names.index((ChildEventKind.STARTED, later))
    assert order(events, ChildEventKind.STOPPED) == ["late", "c", "b", "a"]


async def test_children_that_came_later_are_stopped_before_those_that_were_ready(
    tmp_path: Path,
) -> None:
    events: list[ChildEvent] = []
    supervisor = Supervisor(events.append)
    for name in ("server", "service", "exporter"):
        await supervisor.start([spec(tmp_path, name)])
    await supervisor.stop()
    assert order(events, ChildEventKind.STOPPED) == ["exporter", "service", "server"]


async def test_a_child_begins_at_a_signal_after_every_start_and_is_stopped_before_its_servers(
    tmp_path: Path,
) -> None:
    events: list[ChildEvent] = []
    supervisor, signalled = Supervisor(events.append), asyncio.Event()
    began = tmp_path / "began"
    code = (
        "import os, pathlib, sys, time; mark = pathlib.Path(sys.argv[1]); mark.touch(); "
        f"sys.stdin.read(); pathlib.Path({str(began)!r}).write_text(str(os.getpid())); "
        "time.sleep(60)"
    )
    waiting = spec(tmp_path, "waiting", code=code)
    waiting = msgspec.structs.replace(waiting, begins=signalled.wait, stop_before=("late",))
    await supervisor.start([waiting])
    await supervisor.start([spec(tmp_path, "late")])
    await asyncio.sleep(0.1)
    assert not began.exists()
    signalled.set()
    await until_it_exists(began)
    began.unlink()
    await supervisor.restart("waiting")
    await until_it_exists(began)
    await supervisor.stop()
    stopped = order(events, ChildEventKind.STOPPED)
    assert stopped.index("late") > len(stopped) - 2


async def until_it_exists(path: Path) -> None:
    async with asyncio.timeout(20):
        while not path.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)


async def test_siblings_start_together(tmp_path: Path) -> None:
    wait_for_the_other = (
        "import pathlib, sys, time\n"
        "mine = pathlib.Path(sys.argv[1]); mine.with_suffix('.seen').touch()\n"
        "while len(list(mine.parent.glob('*.seen'))) < 2: time.sleep(0.01)\n"
        "mine.touch(); time.sleep(60)"
    )
    supervisor = Supervisor()
    await supervisor.start([spec(tmp_path, name, code=wait_for_the_other) for name in ("a", "b")])
    await supervisor.stop()


async def test_a_failed_child_is_restarted_and_reported(tmp_path: Path) -> None:
    events: list[ChildEvent] = []
    supervisor = Supervisor(events.append)
    await supervisor.start([spec(tmp_path, "a")])
    first = supervisor.child("a").pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await died(events)
    await supervisor.child("a").wait_ready()
    assert supervisor.child("a").pid not in (None, first)
    await supervisor.stop()
    assert [event.kind for event in events] == [
        "started",
        "ready",
        "died",
        "restarted",
        "ready",
        "stopped",
    ]
    assert events[2].exit_code == -signal.SIGKILL


async def died(events: list[ChildEvent]) -> None:
    for _ in range(6000):
        if order(events, ChildEventKind.DIED):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nothing died")


async def test_a_child_that_dies_again_and_again_is_given_up_with_its_last_words(
    tmp_path: Path,
) -> None:
    supervisor = Supervisor()
    code = (
        "import pathlib, sys, time\n"
        "mark = pathlib.Path(sys.argv[1]); mark.touch()\n"
        "while not mark.with_suffix('.end').exists(): time.sleep(0.01)\n"
        "sys.exit('out of luck')"
    )
    await supervisor.start([spec(tmp_path, "a", code=code)])
    (tmp_path / "a.end").touch()
    error = await asyncio.wait_for(supervisor.wait_for_failure(), 60)
    assert "a ended with exit code 1, 3 times in a row" in str(error)
    assert "out of luck" in str(error)
    assert str(tmp_path / "a.log") in error.remedy
    await supervisor.stop()


async def test_a_child_that_never_starts_fails_the_start_and_stops_the_others(
    tmp_path: Path,
) -> None:
    events: list[ChildEvent] = []
    supervisor = Supervisor(events.append)
    with pytest.raises(ChildFailedError, match=r"b ended with exit code 3"):
        await supervisor.start(
            [
                spec(tmp_path, "a"),
                spec(tmp_path, "b", "a", code="raise SystemExit(3)"),
                spec(tmp_path, "c", "b"),
            ]
        )
    assert order(events, ChildEventKind.STARTED) == ["a", "b"]
    assert order(events, ChildEventKind.STOPPED) == ["a"]
    assert supervisor.names == ()


async def test_an_executable_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = ChildSpec(
        name="a",
        argv=("/no/such/program",),
        ready=FileReady(tmp_path / "x"),
        log_path=tmp_path / "a.log",
    )
    with pytest.raises(ChildFailedError, match=r"a cannot be started.*No such file"):
        await Supervisor().start([missing])


async def test_an_identity_that_cannot_be_taken_ends_the_start_with_its_reason(
    tmp_path: Path,
) -> None:
    """The reason is in the child's log."""
    nobody_is = msgspec.structs.replace(spec(tmp_path, "a"), identity=IMPOSSIBLE)
    with pytest.raises(
        ChildFailedError,
        match=r"(?s)a ended with exit code 126.*2 times.*before the start, as account.*Error",
    ):
        await asyncio.wait_for(Supervisor().start([nobody_is]), 60)


def test_a_tool_without_its_identity_reports_the_reason() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_tool(("/bin/true",), IMPOSSIBLE)
    assert failed.value.returncode == launch.CANNOT_BECOME
    assert "before the start, as account" in failed.value.output


def test_a_tool_gets_its_input_and_gives_its_output_and_its_last_words() -> None:
    assert run_tool(("/bin/cat",), PlainIdentity(), text="ä\n") == "ä\n"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_tool(("/bin/sh", "-c", "echo said; echo wrong >&2; exit 3"), PlainIdentity())
    assert (failed.value.returncode, failed.value.output) == (3, "said\nwrong\n")


async def test_a_child_that_hangs_before_it_is_ready_is_killed_and_reported(tmp_path: Path) -> None:
    with pytest.raises(ChildFailedError, match=r"a was not ready within 0\.3 s"):
        await Supervisor().start(
            [spec(tmp_path, "a", code="import time; time.sleep(60)", ready_timeout_s=0.3)]
        )


async def test_a_child_that_ignores_its_stop_signal_is_killed_after_its_grace(
    tmp_path: Path,
) -> None:
    events: list[ChildEvent] = []
    supervisor = Supervisor(events.append)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + TOUCH_AND_WAIT
    await supervisor.start([spec(tmp_path, "a", code=deaf, stop_grace_s=0.2)])
    await supervisor.stop()
    await supervisor.stop()
    assert (events[-1].kind, events[-1].exit_code) == (ChildEventKind.STOPPED, -signal.SIGKILL)


async def test_a_cancelled_start_leaves_nothing_running(tmp_path: Path) -> None:
    events: list[ChildEvent] = []
    supervisor = Supervisor(events.append)
    starting = asyncio.create_task(
        supervisor.start(
            [spec(tmp_path, "a"), spec(tmp_path, "b", "a", code="import time; time.sleep(60)")]
        )
    )
    while "b" not in order(events, ChildEventKind.STARTED):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert sorted(order(events, ChildEventKind.STOPPED)) == ["a", "b"]
    assert not any(os.path.exists(f"/proc/{event.pid}") for event in events)


@pytest.mark.parametrize("kind", ["http", "tcp"])
async def test_a_server_is_ready_when_it_answers(tmp_path: Path, kind: str) -> None:
    port = free_port()
    code = (
        f"import http.server as h; h.HTTPServer(('127.0.0.1', {port}), "
        "h.SimpleHTTPRequestHandler).serve_forever()"
    )
    ready = (
        HttpReady(f"http://127.0.0.1:{port}/") if kind == "http" else TcpReady("127.0.0.1", port)
    )
    supervisor = Supervisor()
    await supervisor.start([spec(tmp_path, "a", code=code, ready=ready, ports=(port,))])
    assert supervisor.child("a").is_ready
    await supervisor.stop()
    assert port_is_free("127.0.0.1", port)


async def test_a_server_that_answers_with_an_error_is_not_ready(tmp_path: Path) -> None:
    port = free_port()
    code = (
        f"import http.server as h; h.HTTPServer(('127.0.0.1', {port}), "
        "h.BaseHTTPRequestHandler).serve_forever()"
    )
    ready = HttpReady(f"http://127.0.0.1:{port}/readyz")
    with pytest.raises(ChildFailedError, match="not ready"):
        await Supervisor().start([spec(tmp_path, "a", code=code, ready=ready, ready_timeout_s=1)])


async def test_a_port_in_use_is_named_before_anything_starts(tmp_path: Path) -> None:
    events: list[ChildEvent] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            PortInUseError, match=f"port {port}, which b needs.*choose another port"
        ):
            await Supervisor(events.append).start(
                [spec(tmp_path, "a"), spec(tmp_path, "b", ports=(port,))]
            )
    assert events == []


async def test_a_mark_left_by_an_earlier_life_does_not_count_as_ready(tmp_path: Path) -> None:
    (tmp_path / "a.ready").touch()
    with pytest.raises(ChildFailedError):
        await Supervisor().start(
            [spec(tmp_path, "a", code="import time; time.sleep(60)", ready_timeout_s=0.2)]
        )


async def test_a_restart_on_request_gives_a_new_process(tmp_path: Path) -> None:
    supervisor = Supervisor()
    await supervisor.start([spec(tmp_path, "a")])
    first = supervisor.child("a").pid
    await supervisor.restart("a")
    assert supervisor.child("a").pid != first
    await supervisor.stop()


async def test_wrong_declarations_are_refused(tmp_path: Path) -> None:
    supervisor = Supervisor()
    with pytest.raises(EmbeddedError, match="two children are called a"):
        await supervisor.start([spec(tmp_path, "a"), spec(tmp_path, "a")])
    with pytest.raises(EmbeddedError, match="a depends on x, which is not declared"):
        await supervisor.start([spec(tmp_path, "a", "x")])
    with pytest.raises(EmbeddedError, match="circle: a, b"):
        await supervisor.start([spec(tmp_path, "a", "b"), spec(tmp_path, "b", "a")])


def test_layers_follow_dependencies(tmp_path: Path) -> None:
    specs = [
        spec(tmp_path, "d", "b", "c"),
        spec(tmp_path, "b", "a"),
        spec(tmp_path, "c", "a", "outside"),
        spec(tmp_path, "a"),
    ]
    assert dependency_layers(specs) == [["a"], ["b", "c"], ["d"]]


def test_restart_delays_grow_to_a_limit_and_end() -> None:
    policy = RestartPolicy(first_delay_s=0.1, max_delay_s=1.0, start_attempts=3, max_failures=6)
    assert [policy.delay_s(failures, True) for failures in range(1, 7)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.0,
        None,
    ]
    assert [policy.delay_s(failures, False) for failures in range(1, 4)] == [0.1, 0.2, None]


async def test_a_large_log_is_put_aside_before_a_start(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    supervisor = Supervisor()
    await supervisor.start([spec(tmp_path, "a")])
    await supervisor.stop()
    assert log.stat().st_size == 0
    assert (tmp_path / "a.log.1").exists()
