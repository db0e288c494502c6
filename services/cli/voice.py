"""One voice for everything that can go wrong: `topolog: PROBLEM` and `  try: REMEDY`, never a traceback, never a raw retry.

Must not know any verb; what a verb wants to say it raises as a CommandError.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Any

import stamina.instrumentation
import typer
from typer.exceptions import TyperException

from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, complain
from services.embedded.errors import EmbeddedError
from shared.eventlog.errors import LogBroken, LogBusy, LoginTooWeak, LogNotMigrated, LogUnavailable
from shared.telemetry.logs import scrub_text
from shared.telemetry.reasons import plain

TRACEBACK = "TOPOLOG_TRACEBACK"
EXIT_INTERRUPTED = 130
DISK = (errno.ENOSPC, errno.EDQUOT)


def spoken(app: typer.Typer) -> None:
    """Run the command and exit."""
    stamina.instrumentation.set_on_retry_hooks([])
    try:
        sys.exit(app(standalone_mode=False, prog_name="topolog"))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        _end_of_pipe()
    except TyperException as error:
        _misused(error)
    except Exception as error:
        told = as_command_error(error)
        complain(told)
        if os.environ.get(TRACEBACK):
            print(scrub_text("".join(traceback.format_exception(error))), file=sys.stderr)
        sys.exit(told.exit_code)


def as_command_error(error: Exception) -> CommandError:
    """What a person is told of an exception."""
    if isinstance(error, ExceptionGroup):
        first = error.exceptions[0]
        return as_command_error(first if isinstance(first, Exception) else Exception(plain(first)))
    if isinstance(error, CommandError):
        return error
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
            plain(error),
            "make room where the output goes, or have it go elsewhere; then the same again",
        )
    return CommandError(
        f"{scrub_text(plain(error))} ({type(error).__name__}, which nobody foresaw)",
        f"the same again with {TRACEBACK}=1, and report what it shows",
    )


def _misused(error: TyperException) -> None:
    context: Any = getattr(error, "ctx", None)
    if (
        type(error).__name__ == "NoArgsIsHelpError"
    ):  # a group without a verb: its help is the answer
        print(error.format_message(), file=sys.stderr)
        sys.exit(EXIT_USAGE)
    path = context.command_path if context is not None else "topolog"
    said = " ".join(error.format_message().split())
    complain(CommandError(said[:1].lower() + said[1:], f"{path} --help"))
    sys.exit(getattr(error, "exit_code", EXIT_FAILED) or EXIT_FAILED)


def _end_of_pipe() -> None:
    """The reader (`head`) has seen enough: nothing is wrong, and nothing is left to flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
