"""Ports on the loopback address that children are given and keep over restarts.

They lie below the range that the kernel gives to outgoing connections: one of those may sit on a port as long as it lives, and
the child that has it would not start again. Must not know who listens where.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from services.embedded.errors import PortInUseError

HOST = "127.0.0.1"
RANGE = range(20_000, 32_000)
TRIES = 200


def port_is_free(host: str, port: int) -> bool:
    """True when a server could listen on `host`:`port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(preferred: int | None, taken: Collection[int]) -> int:
    """The preferred port if it is free and not taken, else any that is. Raises PortInUseError."""
    if preferred and preferred not in taken and port_is_free(HOST, preferred):
        return preferred
    for port in random.sample(RANGE, TRIES):
        if port not in taken and port_is_free(HOST, port):
            return port
    raise PortInUseError(
        f"{TRIES} ports tried between {RANGE.start} and {RANGE.stop} on {HOST} are all in use",
        f"Free some: ss -ltn 'sport >= :{RANGE.start} and sport < :{RANGE.stop}' lists who listens",
    )
