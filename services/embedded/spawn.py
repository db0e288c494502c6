"""Start one operating-system process: its identity, its log file, and its end together with the
supervisor.

Knows nothing of readiness or restarts.
"""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from services.embedded.child import (
    AccountIdentity,
    Identity,
    ReachingAccountIdentity,
    UserNamespaceIdentity,
)
from services.embedded.environment import inherited

_LAUNCH = Path(__file__).with_name("launch.py")
_LOG_ROTATE_BYTES = 16 * 1024 * 1024


def launched(
    argv: Sequence[str], identity: Identity, death_signal: signal.Signals
) -> tuple[str, ...]:
    """Return the command that becomes `argv` with that identity and ends with this process
    (`launch.py`).

    Linux ties it to the *thread* that starts it: use a thread that lives as long as the supervisor.
    """
    kind, uid, gid = _as_arguments(identity)
    numbers = (str(uid), str(gid), str(int(death_signal)), str(os.getpid()))
    return (sys.executable, "-I", "-S", str(_LAUNCH), kind, *numbers, *argv)


def _as_arguments(identity: Identity) -> tuple[str, int, int]:
    match identity:
        case AccountIdentity(uid=uid, gid=gid):
            return "account", uid, gid
        case ReachingAccountIdentity(uid=uid, gid=gid):
            return "reaching", uid, gid
        case UserNamespaceIdentity(uid=uid, gid=gid):
            return "namespace", uid, gid
        case _:
            return "plain", 0, 0


def _require(program: str, path: str | None) -> None:
    if shutil.which(program, path=path) is None:
        raise FileNotFoundError(errno.ENOENT, "No such file that can be run", program)


def open_log(path: Path) -> IO[bytes]:
    """Open a child's log for appending, with mode 0600. A log of more than 16 MiB is renamed to
    `<name>.1` first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_ROTATE_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab"
    )


def log_tail(path: Path, lines: int = 8) -> str:
    """Return the last lines of a log for an error message, "" if there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 4096))
            return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""


async def spawn(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    log_path: Path,
    identity: Identity,
    death_signal: signal.Signals,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """Start `argv` in its own session, with its output appended to `log_path`.

    Raises OSError if the program does not exist. If its identity cannot be taken it exits with
    `launch.CANNOT_BECOME`, and the log has the reason.
    """
    _require(argv[0], env.get("PATH"))
    with open_log(log_path) as log:
        return await asyncio.create_subprocess_exec(
            *launched(argv, identity, death_signal),
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run_tool(
    argv: tuple[str, ...], identity: Identity, timeout_s: float = 60.0, text: str | None = None
) -> str:
    """Run a short tool (initdb, psql) and return its output.

    Raises subprocess.CalledProcessError with the output on failure, also if its identity cannot be
    taken; OSError if the program does not exist.
    """
    _require(argv[0], None)
    done = subprocess.run(
        launched(argv, identity, signal.SIGKILL),
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        cwd="/",
        env={**inherited(os.environ, ()), "LC_ALL": "C"},
        check=False,
    )
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, argv, output=done.stdout)
    return done.stdout
