"""Keeps the process small: a DaemonSet runs on every node of a cluster, so each megabyte counts hundreds of times.

Two libraries are only ever optional to those who import them, and cost 3 and 2 MB here: rich (colours in structlog's
tracebacks) and uvloop (pays off with many nodes). Must be called before anything else is imported; must not import.
"""

import os
import sys


def leave_out_rich() -> None:
    """structlog then prints tracebacks without colours."""
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]


def leave_out_uvloop(environment: dict[str, str]) -> None:
    """With one node asyncio's own loop is fast enough."""
    if environment.get("TOPOLOG_NODES", "").count("=") <= 1 and not environment.get("TOPOLOG_NODES_FILE"):
        sys.modules.setdefault("uvloop", None)  # type: ignore[arg-type]


def silence_grpc() -> None:
    """grpc reads its log level at import; below errors it names every socket that a restarting kubelet replaces."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
