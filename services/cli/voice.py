"""Turn every error into `topolog: PROBLEM` and `  try: REMEDY`, without a traceback.

Must not know any verb: a verb raises CommandError with its own words.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Any

import typer
from typer.exceptions import TyperException

from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, complain
from services.embedded.errors import ChildFailedError, EmbeddedError
from shared.eventlog.errors import LogBroken, LogBusy, LoginTooWeak, LogNotMigrated, LogUnavailable
from shared.telemetry.reasons import plain
from shared.telemetry.scrubbing import scrub_text

TRACEBACK = "TOPOLOG_TRACEBACK"
EXIT_INTERRUPTED = 130
DISK = (errno.ENOSPC, errno.EDQUOT)


def run_app(app: typer.Typer, name: str = "topolog") -> None:
    """Run the command and exit. `name` is what users type, for usage lines."""
    try:
        sys.exit(app(standalone_mode=False, prog_name=name))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        _end_of_pipe()
    except TyperException as error:
        _misused(error)
    except Exception as error:
        reported = as_command_error(error)
        complain(reported)
        if os.environ.get(TRACEBACK):
            print(scrub_text("".join(traceback.format_exception(error))), file=sys.stderr)
        sys.exit(reported.exit_code)


def as_command_error(error: Exception) -> CommandError:
    """Return problem, remedy and exit code of any exception."""
    if isinstance(error, ExceptionGroup):
        first = error.exceptions[0]
        return as_command_error(first if isinstance(first, Exception) else Exception(plain(first)))
    if isinstance(error, CommandError):
        return error
    if isinstance(error, ChildFailedError):
        return CommandError(error.problem, error.remedy, details=error.log_tail.splitlines())
    if isinstance(error, EmbeddedError):
        return CommandError(error.problem, error.remedy)
    if isinstance(error, LogBroken | LogBusy | LoginTooWeak):
        problem, _, remedy = str(error).partition("; ")
        return CommandError(problem, remedy)
    if isinstance(error, LogUnavailable | LogNotMigrated):
        return CommandError(
            str(error).partition("; ")[0], "topolog up, or --database-url of a running log"
        )
    if isinstance(error, OSError) and error.errno in DISK:
        return CommandError(
            plain(error), "free space on that disk or write to another one, then run it again"
        )
    return CommandError(
        f"unexpected error: {scrub_text(plain(error))} ({type(error).__name__})",
        f"run it again with {TRACEBACK}=1 and report the output",
    )


def _misused(error: TyperException) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without a verb: print its help
        print(error.format_message(), file=sys.stderr)
        sys.exit(EXIT_USAGE)
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "topolog"
    message = " ".join(error.format_message().split())
    complain(CommandError(message[:1].lower() + message[1:], f"{path} --help"))
    sys.exit(getattr(error, "exit_code", EXIT_FAILED) or EXIT_FAILED)


def _end_of_pipe() -> None:
    """Exit quietly if the reader (`head`) has closed the pipe: there is nothing left to flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
