"""Describe a supervised child as values: how to start it, when it is ready, how it ends."""

import signal
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec


class HttpReady(msgspec.Struct, frozen=True, tag=True):
    """Ready when a GET of `url` (plain http) answers 200."""

    url: str


class TcpReady(msgspec.Struct, frozen=True, tag=True):
    """Ready when `host`:`port` accepts a connection."""

    host: str
    port: int


class FileReady(msgspec.Struct, frozen=True, tag=True):
    """Ready when `path` exists. A file of an earlier start is removed before each start."""

    path: Path


class PostmasterReady(msgspec.Struct, frozen=True, tag=True):
    """Ready when the pid file of Postgres says `ready` and has the child's pid (pg_ctl does the
    same)."""

    pid_file: Path


Ready = HttpReady | TcpReady | FileReady | PostmasterReady


class PlainIdentity(msgspec.Struct, frozen=True, tag=True):
    """The child runs as the user of the supervisor."""


class AccountIdentity(msgspec.Struct, frozen=True, tag=True):
    """The child drops from root to this account."""

    name: str
    uid: int
    gid: int


class UserNamespaceIdentity(msgspec.Struct, frozen=True, tag=True):
    """The child sees itself as this account inside a user namespace; outside, its files belong to
    root.
    """

    name: str
    uid: int
    gid: int


class ReachingAccountIdentity(msgspec.Struct, frozen=True, tag=True):
    """The child drops from root to this account, and keeps a capability to enter closed folders."""

    name: str
    uid: int
    gid: int


Identity = PlainIdentity | AccountIdentity | UserNamespaceIdentity | ReachingAccountIdentity


class RestartPolicy(msgspec.Struct, frozen=True):
    """Limits and pauses for restarts of a failed child.

    A run is healthy if the child was ready and lived for `healthy_after_s`; it resets the count of
    failures. `start_attempts` limits the starts before the child was ready for the first time,
    `max_failures` the failures after it.
    """

    first_delay_s: float = 0.1
    max_delay_s: float = 5.0
    healthy_after_s: float = 5.0
    start_attempts: int = 3
    max_failures: int = 30

    def delay_s(self, failures: int, was_ready_once: bool) -> float | None:
        """Return the seconds to wait after this many failures in a row, None to give up."""
        if failures >= (self.max_failures if was_ready_once else self.start_attempts):
            return None
        return float(min(self.max_delay_s, self.first_delay_s * 2 ** min(max(failures - 1, 0), 30)))


Prepare = Callable[[], Awaitable[Mapping[str, str]]]
Begins = Callable[[], Awaitable[object]]


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One child process.

    `env` is added to the system's variables and to `passes`, names of variables of the supervisor
    (`services.embedded.environment`). `ports` are checked before the first start. `prepare` runs
    before every start and returns variables for that start. The kernel sends `parent_death_signal`
    to the child if the supervisor dies without stopping it (Linux). The child's standard input ends
    when `begins` returns (`shared.runtime.start_signal`); without it, it is empty. `stop_before`
    names children that stop after this one, in addition to those of `depends_on`.
    """

    name: str
    argv: tuple[str, ...]
    ready: Ready
    log_path: Path
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    passes: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 10.0
    ready_timeout_s: float = 30.0
    ports: tuple[int, ...] = ()
    cwd: Path | None = None
    identity: Identity = PlainIdentity()
    parent_death_signal: signal.Signals = signal.SIGKILL
    restart: RestartPolicy = RestartPolicy()
    prepare: Prepare | None = None
    begins: Begins | None = None
    stop_before: tuple[str, ...] = ()


class ChildEventKind(StrEnum):
    """Kind of a change of a child."""

    STARTED = "started"
    READY = "ready"
    DIED = "died"
    RESTARTED = "restarted"
    STOPPED = "stopped"
    GAVE_UP = "gave_up"


class ChildEvent(msgspec.Struct, frozen=True):
    """A change of a child. `exit_code` is set for died and stopped, as subprocess reports it: minus
    the signal number.
    """

    kind: ChildEventKind
    name: str
    pid: int
    exit_code: int | None = None
    restarts: int = 0


OnEvent = Callable[[ChildEvent], None]


def ignore_event(_event: ChildEvent) -> None:
    """Ignore events: the default callback."""
