"""Starts one operating-system process: its identity, its log file, and its death with the supervisor's.

Knows nothing of readiness, restarts or what the process is.
"""

import asyncio
import ctypes
import ctypes.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from services.embedded.child import AccountIdentity, Identity, ReachingAccountIdentity, UserNamespaceIdentity

_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP = 28, 1 << 2
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522
_CLONE_NEWUSER = 0x10000000
_START_TRIES = 3
_LOG_ROTATE_BYTES = 16 * 1024 * 1024
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def before_exec(identity: Identity, death_signal: signal.Signals) -> Callable[[], None]:
    """What the child does between fork and exec: take its identity, then tie its life to the supervisor's.

    The order matters: Linux forgets the parent-death signal when credentials change (prctl(2)). It runs in a fork of a
    process that may have threads, so it takes no lock and imports nothing. subprocess tells the parent only that something
    was raised here, so what it was goes to the child's standard error: its log, or what `run_tool` keeps.
    """
    parent_pid = os.getpid()

    def run() -> None:
        try:
            _take_identity(identity)
            _die_with(parent_pid, death_signal)
        except BaseException as error:
            os.write(2, f"before the start, as {identity}: {type(error).__name__}: {error}\n".encode())
            raise

    return run


def _take_identity(identity: Identity) -> None:
    match identity:
        case AccountIdentity(uid=uid, gid=gid):
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        case ReachingAccountIdentity(uid=uid, gid=gid):
            _become_reaching(uid, gid)
        case UserNamespaceIdentity(uid=uid, gid=gid):
            _enter_user_namespace(uid, gid)
        case _:
            pass


def _become_reaching(uid: int, gid: int) -> None:
    """Change to the account with CAP_DAC_OVERRIDE as an ambient capability, which survives the exec (capabilities(7))."""
    if _LIBC is None:
        raise OSError("capabilities are Linux only")
    # Not only setuid(2) would take the capability away: access(2), which initdb uses, ignores it without this bit.
    _LIBC.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    bit = 1 << _CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    effective_permitted_inheritable = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    if _LIBC.capset(header, effective_permitted_inheritable) != 0:
        raise OSError(ctypes.get_errno(), "the capability to pass closed folders is not to be had")
    if _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ambient capabilities are refused here")


def _enter_user_namespace(uid: int, gid: int) -> None:
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    if _LIBC is None or _LIBC.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "user namespaces are refused here")
    _tell_kernel("/proc/self/setgroups", "deny")
    _tell_kernel("/proc/self/uid_map", f"{uid} {outer_uid} 1")
    _tell_kernel("/proc/self/gid_map", f"{gid} {outer_gid} 1")


def _tell_kernel(path: str, text: str) -> None:
    """One write to a file of /proc, by its own calls alone: no buffers, no codecs, after a fork among threads."""
    opened = os.open(path, os.O_WRONLY)
    try:
        os.write(opened, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"{path} does not take {text!r}: {error.strerror}") from error
    finally:
        os.close(opened)


def _die_with(parent_pid: int, death_signal: signal.Signals) -> None:
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def open_log(path: Path) -> IO[bytes]:
    """Open a child's log for appending, 0600; one that grew past 16 MiB is put aside as `<name>.1` first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_ROTATE_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


def log_tail(path: Path, lines: int = 8) -> str:
    """The last lines of a log, for an error message; empty when there is none."""
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
) -> asyncio.subprocess.Process:
    """Start `argv` in a session of its own, output appended to `log_path`.

    Raises OSError when it cannot be run, subprocess.SubprocessError when its identity cannot be taken (the log says why).

    Linux ties the child to the *thread* that starts it: call from a thread that lives as long as the supervisor.
    """
    with open_log(log_path) as log:
        return await asyncio.create_subprocess_exec(
            *argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=before_exec(identity, death_signal),
        )


def run_tool(argv: tuple[str, ...], identity: Identity, timeout_s: float = 60.0, text: str | None = None) -> str:
    """Run a short tool (initdb, psql) to its end and return its output.

    Taking the identity between fork and exec failed once under load where the same had just succeeded; the tool has not run
    then, so it is tried again, `_START_TRIES` times in all. Raises subprocess.CalledProcessError with its output on failure,
    OSError when it cannot be started, subprocess.SubprocessError with the reason when its identity cannot be taken.
    """
    for attempt in range(1, _START_TRIES + 1):
        try:
            return _run_once(argv, identity, timeout_s, text)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            raise
        except subprocess.SubprocessError:
            if attempt == _START_TRIES:
                raise
    raise AssertionError("the last try returns or raises")


def _run_once(argv: tuple[str, ...], identity: Identity, timeout_s: float, text: str | None) -> str:
    # A file and not a pipe: what a child wrote that never came to its exec is still there to be read.
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                argv,
                input=None if text is None else text.encode(),
                stdin=subprocess.DEVNULL if text is None else None,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                cwd="/",
                env={**os.environ, "LC_ALL": "C"},
                preexec_fn=before_exec(identity, signal.SIGKILL),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise
        except subprocess.SubprocessError as error:
            raise subprocess.SubprocessError(f"{argv[0]}: {_whole(said).strip() or error}") from error
        output = _whole(said)
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, argv, output=output)
    return output


def _whole(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
