"""Handle a postmaster.pid of an earlier run before Postgres starts on its folder.

The caller holds the data folder's lock, so no other supervisor works here. Postgres itself clears a
file whose process is dead. An empty file must be removed. If another program has that pid, Postgres
ignores it (`PG_GRANDPARENT_PID`, as Patroni does). A postmaster on this folder is a
leftover and is stopped.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

_LEFTOVER_GRACE_S = 10.0
_POLL_S = 0.05


async def clear_leftovers(cluster: Path) -> Mapping[str, str]:
    """Make `cluster` startable and return the variables for its next start. Stops a leftover
    postmaster.
    """
    pid_file = cluster / "postmaster.pid"
    pid = _pid_in(pid_file)
    if pid is None:
        pid_file.unlink(missing_ok=True)
        return {}
    if not _alive(pid):
        return {}
    if not _is_postmaster_of(pid, cluster):
        return {"PG_GRANDPARENT_PID": str(pid)}
    await _stop_leftover(pid)
    return {}


def _pid_in(pid_file: Path) -> int | None:
    try:
        pid = int(pid_file.read_text(encoding="ascii", errors="replace").split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    return abs(pid) or None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _is_postmaster_of(pid: int, cluster: Path) -> bool:
    """Compare the process' working directory with the data folder. Without /proc the process is
    left alone.
    """
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="ascii", errors="replace").strip()
        return name == "postgres" and os.path.samefile(f"/proc/{pid}/cwd", cluster)
    except OSError:
        return False


async def _stop_leftover(pid: int) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if await _gone_within(pid, _LEFTOVER_GRACE_S):
            return


async def _gone_within(pid: int, seconds: float) -> bool:
    for _ in range(int(seconds / _POLL_S)):
        if not _alive(pid) or _zombie(pid):
            return True
        await asyncio.sleep(_POLL_S)
    return False


def _zombie(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii", errors="replace")
            .rpartition(")")[2]
            .split()[0]
            == "Z"
        )
    except (OSError, IndexError):
        return False
