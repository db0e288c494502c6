"""Ports on the loopback address that children are given and keep over restarts.

They lie below the range that the kernel gives to outgoing connections: one of those may sit on a
port as long as it lives, and the child that has it would not start again. From the moment it is
chosen a port is claimed, while this process lives: another `topolog up` that starts in the same
moment could otherwise choose it too, before any child listens there, and one of the two children
would never start. The claim is a UDP socket of the same number, which goes with the process however
that ends. Must not know who listens where.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from services.embedded.errors import PortInUseError

HOST = "127.0.0.1"
RANGE = range(20_000, 32_000)
TRIES = 200

_claims: dict[int, socket.socket] = {}


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
    """The preferred port if it is free and not taken, else any that is; claimed from now on. Raises
    PortInUseError.
    """
    if preferred and preferred not in taken and _claim(preferred):
        return preferred
    for port in random.sample(RANGE, TRIES):
        if port not in taken and port not in _claims and _claim(port):
            return port
    raise PortInUseError(
        f"{TRIES} ports tried between {RANGE.start} and {RANGE.stop} on {HOST} are all in use",
        f"Free some: ss -ltn 'sport >= :{RANGE.start} and sport < :{RANGE.stop}' lists who listens",
    )


def _claim(port: int) -> bool:
    """False when somebody listens there, or another process claims it."""
    if not port_is_free(HOST, port):
        return False
    if port in _claims:
        return True
    claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        claim.bind((HOST, port))
    except OSError:
        claim.close()
        return False
    _claims[port] = claim
    return True
