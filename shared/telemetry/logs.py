"""Structured log lines with one event name each (declared in `names`), as JSON or for a console.

Secrets are masked. Lines go to standard error. Libraries that use `logging` (uvicorn, alembic) get
the same form.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog

from shared.telemetry import names
from shared.telemetry.instruments import count
from shared.telemetry.scrubbing import scrub

Format = Literal["json", "console"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def get(component: str) -> Any:
    """Return a logger whose lines have `component`."""
    return structlog.get_logger().bind(component=component)


def bound(**keys: object) -> AbstractContextManager[Any]:
    """Add keys (pod, node, position, role) to the lines inside the block."""
    return structlog.contextvars.bound_contextvars(**keys)


def _scrub_line(
    _logger: Any, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    return {key: scrub(value, key) for key, value in line.items()}


class _StandardError:
    """Standard error at the moment of writing, because it may be replaced or closed after logs were
    set up. A line that cannot be written (full disk, closed pipe) is counted and ends no
    service."""

    def write(self, text: str) -> int:
        try:
            return sys.stderr.write(text)
        except OSError:
            count(names.LOG_LINES_LOST)
            return 0

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def configure(service: str, form: Format = "json", level: str = "info") -> None:
    """Set up logging for the process. It may be called again."""
    renderer: Any = structlog.processors.JSONRenderer(serializer=_json)
    if form == "console":
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(service=service)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _scrub_line,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(level, 20)),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, _StandardError())),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Forward()], level=logging.WARNING, force=True)


def _json(line: dict[str, Any], **_options: Any) -> str:
    return msgspec.json.encode(line, enc_hook=str).decode()


class _Forward(logging.Handler):
    """Forwards the lines of the standard library's loggers."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger().bind(component=record.name)
        level = record.levelname.lower()
        exception = {"exc_info": record.exc_info} if record.exc_info else {}
        getattr(logger, level if level in _LEVELS else "error")(record.getMessage(), **exception)
