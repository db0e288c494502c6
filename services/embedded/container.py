"""Shared parts of the container entry points: settings from the environment, and running until
asked to stop.

All problems of the environment are reported at once. Imports only the modules that a health check
needs.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from services.embedded.child import ChildEvent
from services.embedded.errors import ChildFailedError, EmbeddedError
from services.embedded.postgres import PORT
from services.embedded.supervisor import Supervisor
from shared.runtime.secret_file import SecretUnreadable, value_or_file

DEFAULT_DATA_DIR = "/var/lib/topolog"
MONITOR_PORT = 8222
_EXIT_CONFIGURATION = 2
_EXIT_SERVER = 1


def data_dir_setting() -> Path:
    """Return `TOPOLOG_DATA_DIR`, or the mount point of the images' volume."""
    return Path(os.environ.get("TOPOLOG_DATA_DIR") or DEFAULT_DATA_DIR)


def required(*names: str) -> tuple[str, ...]:
    """Return the values of required variables, or of their files (NAME_FILE). Raises EmbeddedError
    with all missing names.
    """
    values = {name: secret(name) for name in names}
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise EmbeddedError(
            f"not set: {', '.join(missing)}", "Set them in the container's environment"
        )
    return tuple(values.values())


def secret(name: str, optional: bool = False) -> str:
    """Return the value of a variable, or the contents of the file in NAME_FILE, or "". If
    `optional`, a missing file (a Secret without that key) is "", too. Raises EmbeddedError.
    """
    file = os.environ.get(f"{name}_FILE", "")
    if optional and file and not os.environ.get(name) and not os.path.exists(file):
        return ""
    try:
        return value_or_file(os.environ, name)
    except SecretUnreadable as error:
        problem, _, remedy = str(error).partition("; ")
        raise EmbeddedError(f"{name}_FILE: {problem}", remedy.capitalize()) from None


def number(name: str, default: int, low: int, high: int) -> int:
    """Return a whole number from the environment. Raises EmbeddedError with the range."""
    text = os.environ.get(name) or str(default)
    if not text.isdecimal() or not low <= int(text) <= high:
        raise EmbeddedError(
            f"{name} must be a whole number from {low} to {high} (found {text!r})",
            f"Correct {name}",
        )
    return int(text)


def monitor_port() -> int:
    """Return the port of NATS' monitoring pages."""
    return number("TOPOLOG_NATS_MONITOR_PORT", MONITOR_PORT, 1, 65_535)


def postgres_port() -> int:
    """Return Postgres' TCP port, which is also part of the socket's name."""
    return number("TOPOLOG_POSTGRES_PORT", PORT, 1, 65_535)


def print_event(event: ChildEvent) -> None:
    """Print one line for the container's log."""
    code = "" if event.exit_code is None else f" exit_code={event.exit_code}"
    print(f"{event.name} {event.kind} pid={event.pid}{code}", file=sys.stderr, flush=True)


async def run_until_stopped(supervisor: Supervisor) -> None:
    """Return on SIGTERM or SIGINT. Raises ChildFailedError if a child is given up."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopped, failed = (
        asyncio.create_task(stop.wait()),
        asyncio.create_task(supervisor.wait_for_failure()),
    )
    await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
    for task in (stopped, failed):
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    if failed.done() and not failed.cancelled():
        raise failed.result()


def main(serve: Callable[[], Awaitable[None]]) -> int:
    """Run `serve`. An error becomes one line and an exit code: 2 for the environment and folders, 1
    for a server.
    """

    async def guarded() -> int:
        try:
            await serve()
        except EmbeddedError as error:
            from shared.telemetry.scrubbing import scrub_text

            print(scrub_text(f"error: {error}"), file=sys.stderr)
            return _EXIT_SERVER if isinstance(error, ChildFailedError) else _EXIT_CONFIGURATION
        return 0

    return asyncio.run(guarded())
