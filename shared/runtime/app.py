"""The skeleton of a service: settings, telemetry, HTTP, tasks, signals, draining, exit codes.

`build(service, settings)` opens what the service needs and names tasks, routes and closings. A
service ends by a signal (exit 0), a failed task (1), invalid settings (2), a fenced epoch (3), or
because the log, the bus or the Kubernetes API could not be reached at start (4), either in `build`
or in the task that opens the connection.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from starlette.routing import Route

from shared.bus.port import BusUnavailable
from shared.eventlog.errors import LoginTooStrong, LoginTooWeak, LogNotMigrated, LogUnavailable
from shared.kube.port import KubeUnavailableError
from shared.kube.rights import Right
from shared.runtime import api_readiness, lean, start_signal
from shared.runtime.api_readiness import ApiReadiness, Reviews
from shared.runtime.clock import SYSTEM_CLOCK, Clock
from shared.runtime.health import Health
from shared.runtime.http import HttpServer
from shared.runtime.http_access import is_loopback
from shared.runtime.http_tls import HttpTlsError
from shared.runtime.leadership import LeaseLost
from shared.runtime.settings import CommonSettings, SettingsInvalid, load, masked
from shared.telemetry import logs, names
from shared.telemetry.collector import collector
from shared.telemetry.instruments import observe, set_gauge
from shared.telemetry.setup import Telemetry, TelemetrySettings, set_up

S = TypeVar("S", bound=CommonSettings)
Work = Callable[[], Coroutine[Any, Any, None]]
CLOSE_TIMEOUT_S = 5.0
# Seconds between two measurements of timer delay; a nearly idle service may use more.
LOOP_WATCH_S = 1.0


class Exit(IntEnum):
    CLEAN = 0
    FAILED = 1
    SETTINGS = 2
    FENCED = 3
    UNREACHABLE = 4


class Service:
    """The parts of one service, which `build` composes."""

    def __init__(
        self, name: str, settings: CommonSettings, telemetry: Telemetry, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.name = name
        self.holder = settings.instance or holder_name(name)
        self.clock = clock
        self.health = Health()
        self.stopping = asyncio.Event()
        self.loop_watch_s = LOOP_WATCH_S
        self.telemetry = telemetry
        self.http: HttpServer | None = None
        self.built = False
        self.health.check("start", lambda: "" if self.built else "the log and the bus")
        self._settings = settings
        self._works: list[tuple[str, Work, bool]] = []
        self._lasting: set[str] = set()
        self._closings: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._out = logs.get(name)

    def task(self, name: str, work: Work, *, drains: bool = False, lasts: bool = True) -> None:
        """Run `work` for the service's life. A task that `drains` watches `stopping` and returns by
        itself within the grace period; other tasks are cancelled at once. A task without `lasts` is
        done when it returns. An exception in a task ends the service."""
        self._works.append((name, work, drains))
        if lasts:
            self._lasting.add(name)

    def route(
        self, path: str, endpoint: Callable[..., Any], methods: list[str] | None = None
    ) -> None:
        assert self.http is not None
        self.http.add(Route(path, endpoint, methods=methods))

    def on_close(self, name: str, close: Callable[[], Awaitable[None]]) -> None:
        """Close something after all tasks have ended, in reverse order of opening."""
        self._closings.append((name, close))

    def needs_kubernetes(self, kube: Reviews, rights: Collection[Right]) -> None:
        """Be unready while the Kubernetes API does not answer, or denies a right that the service
        needs.
        """
        readiness = ApiReadiness(kube, rights, self.clock)
        self.health.check(api_readiness.COMPONENT, readiness.problem)
        self.task(api_readiness.COMPONENT, readiness.run)

    async def run(self) -> Exit:
        """Serve until stopped; return the exit code."""
        running: dict[asyncio.Task[Any], bool] = {
            asyncio.create_task(work(), name=name): drains for name, work, drains in self._works
        }
        watch = asyncio.create_task(_watch_loop(self.clock, self.loop_watch_s), name="loop watch")
        stop = asyncio.create_task(self.stopping.wait(), name="stop")
        for name in sorted(self._lasting):
            set_gauge(names.TASK_RUNNING, 1, task=name)
        try:
            code = await self._until_stopped(running, stop)
            self._out.info(names.STOPPING, code=code.name)
            self.stopping.set()
            await self._drain(running)
        finally:
            for task in (watch, stop):
                task.cancel()
            await asyncio.gather(watch, stop, return_exceptions=True)
        return code

    async def serve_http(self) -> None:
        """Open the HTTP server with the health routes; `build` adds the service's routes."""
        settings = self._settings
        self.http = HttpServer(
            settings.http_host,
            settings.http_port,
            self.health,
            self.telemetry,
            settings.token(),
            settings.tls(),
            settings.http_allowed_hosts,
        )
        await self.http.start()

    async def close(self) -> None:
        """Close what `build` opened, each within CLOSE_TIMEOUT_S, even if others fail."""
        for name, close in reversed(self._closings):
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await close()
            except Exception as error:
                self._out.warning(names.DRAIN_EXCEEDED, what=name, problem=repr(error))
        if self.http is not None:
            await self.http.close()
        self.telemetry.flush()

    async def _until_stopped(
        self, running: dict[asyncio.Task[Any], bool], stop: asyncio.Task[Any]
    ) -> Exit:
        pending: set[asyncio.Task[Any]] = {stop, *running}
        while not stop.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                code = self._ended(task)
                if code is not Exit.CLEAN:
                    return code
        return Exit.CLEAN

    def _ended(self, task: asyncio.Task[Any]) -> Exit:
        if task.get_name() in self._lasting:
            set_gauge(names.TASK_RUNNING, 0, task=task.get_name())
        if task.cancelled():
            return Exit.CLEAN
        error = task.exception()
        if error is None:
            return Exit.CLEAN
        self._out.error(names.TASK_FAILED, task=task.get_name(), problem=str(error), exc_info=error)
        if isinstance(error, KubeUnavailableError):
            return Exit.UNREACHABLE
        return Exit.FENCED if isinstance(error, LeaseLost) else Exit.FAILED

    async def _drain(self, running: dict[asyncio.Task[Any], bool]) -> None:
        for task, drains in running.items():
            if not drains:
                task.cancel()
        unfinished = {task for task in running if not task.done()}
        if not unfinished:
            return
        _, unfinished = await asyncio.wait(unfinished, timeout=self._settings.drain_grace_s)
        for task in unfinished:
            self._out.warning(names.DRAIN_EXCEEDED, what=task.get_name())
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=1.0)


Build = Callable[[Service, S], Awaitable[None]]


def holder_name(service: str) -> str:
    """Return a unique name for the holder of a lease."""
    return f"{service}/{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


async def _watch_loop(clock: Clock, every_s: float) -> None:
    """Measure timer delay: a blocked event loop is the usual cause of unexplained latency."""
    while True:
        due_s = clock.monotonic_s() + every_s
        await clock.sleep(every_s)
        observe(names.LOOP_DELAY, max(clock.monotonic_s() - due_s, 0.0))


DATABASE_MISSING = (
    "TOPOLOG_DATABASE_URL: is not set; set it to postgresql://USER:PASSWORD@HOST/DATABASE, "
    "or TOPOLOG_DATABASE_URL_FILE to a file with that URL"
)


def run_service(
    name: str,
    kind: type[S],
    build: Build[S],
    environment: Mapping[str, str] | None = None,
    needs_database: bool = False,
) -> int:
    """Load settings, run the service, return the exit code: the whole of a `__main__`."""
    environment = os.environ if environment is None else environment
    to = collector(environment)
    try:
        settings = load(kind, environment)
        if to.problem:
            raise SettingsInvalid([to.problem])
        if needs_database and not settings.database():
            raise SettingsInvalid([DATABASE_MISSING])
    except SettingsInvalid as error:
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        print(
            f"{name} cannot start, {len(error.problems)} invalid setting(s):\n{lines}",
            file=sys.stderr,
        )
        return Exit.SETTINGS
    if settings.production and (exposure := exposed(settings)):
        print(f"{name} cannot start with TOPOLOG_PRODUCTION=true: {exposure}", file=sys.stderr)
        return Exit.SETTINGS
    options = TelemetrySettings(
        log_format=settings.log_format,
        log_level=settings.log_level,
        trace_file=settings.trace_file,
        trace_ratio=settings.trace_ratio,
        collector=to,
    )
    telemetry = set_up(name, options)
    lean.loaded()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return int(runner.run(_main(name, settings, build, telemetry)))


def exposed(settings: CommonSettings) -> str:
    """Return what the HTTP server exposes to the network, with the remedy; "" if nothing."""
    if settings.http_token or settings.tls().client_ca or is_loopback(settings.http_host):
        return ""
    return (
        f"TOPOLOG_HTTP_HOST={settings.http_host} exposes metrics and state to the network; "
        "set TOPOLOG_HTTP_TOKEN (or TOPOLOG_HTTP_TOKEN_FILE) or TOPOLOG_HTTP_TLS_CLIENT_CA, "
        "or bind 127.0.0.1"
    )


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory, or None if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _main(name: str, settings: S, build: Build[S], telemetry: Telemetry) -> Exit:
    service = Service(name, settings, telemetry)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stopping.set)
    out = logs.get(name)
    code = Exit.FAILED
    try:
        code = await _build_and_run(service, settings, build)
    except (LoginTooStrong, LoginTooWeak, HttpTlsError) as error:
        out.error(names.TASK_FAILED, task="build", problem=str(error))
        code = Exit.SETTINGS
    except (LogUnavailable, LogNotMigrated, BusUnavailable, KubeUnavailableError) as error:
        out.error(names.TASK_FAILED, task="build", problem=str(error))
        code = Exit.UNREACHABLE
    except Exception as error:
        out.error(names.TASK_FAILED, task="build", problem=str(error), exc_info=error)
    finally:
        await service.close()
        out.info(names.STOPPED, code=int(code), reason=code.name)
    return code


async def _build_and_run(service: Service, settings: S, build: Build[S]) -> Exit:
    """Build, unless a signal comes first, then serve."""
    if exposure := exposed(settings):
        logs.get(service.name).warning(names.HTTP_EXPOSED, problem=exposure)
    await service.serve_http()
    building = asyncio.ensure_future(_built(service, settings, build))
    stop = asyncio.ensure_future(service.stopping.wait())
    await asyncio.wait({building, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not building.done():
        building.cancel()
        await asyncio.gather(building, return_exceptions=True)
        return Exit.CLEAN
    await building
    service.built = True
    url = service.http.url if service.http else ""
    logs.get(service.name).info(
        names.STARTED, url=url, holder=service.holder, settings=masked(settings)
    )
    return await service.run()


async def _built(service: Service, settings: S, build: Build[S]) -> None:
    await start_signal.wait_for(os.environ)
    await build(service, settings)
