"""The socket of an HTTP port: answers leave at once.

An answer is written in two parts, head and body. With Nagle's algorithm the body waits until the
other side acknowledges the head, which Linux delays by 40 ms. asyncio turns the algorithm off for
sockets that say that they are TCP's (`socket.proto`), and those of `socket.create_server` do not:
connections take the option from the socket that they come in by.
"""

from __future__ import annotations

import socket


def listener(host: str, port: int, *, both_families: bool = False) -> socket.socket:
    """Listen at an address; port 0 lets the system choose. `both_families`: `::` takes IPv4 too.
    Raises OSError.
    """
    wide = ":" in host
    family = socket.AF_INET6 if wide else socket.AF_INET
    found = socket.create_server((host, port), family=family, dualstack_ipv6=wide and both_families)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found
