"""Choose ports on loopback that children keep over restarts.

The ports are below the kernel's range for outgoing connections: such a connection could keep a port
busy, and the child could not restart. A chosen port is claimed while this process lives, because a
second `topolog up` that starts at the same time could choose it before the child listens. The claim
is a UDP socket with the same number, which ends with the process.
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
    """Return whether a server could listen on `host`:`port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(preferred: int | None, taken: Collection[int]) -> int:
    """Return the preferred port if it is free and not taken, else another free port, and claim it.
    Raises PortInUseError.
    """
    if preferred and preferred not in taken and _claim(preferred):
        return preferred
    for port in random.sample(RANGE, TRIES):
        if port not in taken and port not in _claims and _claim(port):
            return port
    raise PortInUseError(
        f"{TRIES} ports tried between {RANGE.start} and {RANGE.stop} on {HOST} are all in use",
        f"Free some ports: ss -ltn 'sport >= :{RANGE.start} and sport < :{RANGE.stop}' lists them",
    )


def _claim(port: int) -> bool:
    """Return False if the port is in use, or claimed by another process."""
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
