"""What the container entry points share: settings from the environment, running until asked to
stop.

Everything wrong with the environment is named at once. Of the servers it knows the ports. Loads
what a health check needs, and no more.
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
    """`TOPOLOG_DATA_DIR`, or the folder where the images mount their volume."""
    return Path(os.environ.get("TOPOLOG_DATA_DIR") or DEFAULT_DATA_DIR)


def required(*names: str) -> tuple[str, ...]:
    """Values of variables that must be set, or of their files (NAME_FILE). Raises EmbeddedError
    naming all that are not.
    """
    found = {name: secret(name) for name in names}
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise EmbeddedError(
            f"not set: {', '.join(missing)}", "Set them in the container's environment"
        )
    return tuple(found.values())


def secret(name: str, optional: bool = False) -> str:
    """A variable's value, or what stands in the file that NAME_FILE names; "" for neither, and
    where `optional` for a file that is not there (a Secret without that key). Raises EmbeddedError.
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
    """A whole number from the environment. Raises EmbeddedError with the range."""
    text = os.environ.get(name) or str(default)
    if not text.isdecimal() or not low <= int(text) <= high:
        raise EmbeddedError(f"{name} is {text!r}", f"Give a whole number from {low} to {high}")
    return int(text)


def monitor_port() -> int:
    """The port of NATS' monitoring pages."""
    return number("TOPOLOG_NATS_MONITOR_PORT", MONITOR_PORT, 1, 65_535)


def postgres_port() -> int:
    """Postgres' TCP port, which also names the socket."""
    return number("TOPOLOG_POSTGRES_PORT", PORT, 1, 65_535)


def print_event(event: ChildEvent) -> None:
    """One line for the container's log."""
    code = "" if event.exit_code is None else f" exit_code={event.exit_code}"
    print(f"{event.name} {event.kind} pid={event.pid}{code}", file=sys.stderr, flush=True)


async def run_until_stopped(supervisor: Supervisor) -> None:
    """Return on SIGTERM or SIGINT. Raises ChildFailedError when a child is given up."""
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
    """Run `serve`; errors become one line and an exit code: 2 for the environment and folders, 1
    for a server.
    """

    async def guarded() -> int:
        try:
            await serve()
        except EmbeddedError as error:
            from shared.telemetry.logs import scrub_text

            print(scrub_text(f"error: {error}"), file=sys.stderr)
            return _EXIT_SERVER if isinstance(error, ChildFailedError) else _EXIT_CONFIGURATION
        return 0

    return asyncio.run(guarded())
