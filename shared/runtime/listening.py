"""The socket of an HTTP port, with TCP_NODELAY.

An answer is written in two parts, head and body. With Nagle's algorithm the body waits for the
acknowledgement of the head, which Linux delays by 40 ms. asyncio disables the algorithm only on
sockets with TCP as `proto`, and those of `socket.create_server` have proto 0. Accepted connections
inherit the option from the listening socket.
"""

from __future__ import annotations

import socket


def listener(host: str, port: int, *, both_families: bool = False) -> socket.socket:
    """Listen at an address; port 0 lets the system choose. With `both_families`, `::` accepts IPv4,
    too. Raises OSError.
    """
    wide = ":" in host
    family = socket.AF_INET6 if wide else socket.AF_INET
    listening = socket.create_server(
        (host, port), family=family, dualstack_ipv6=wide and both_families
    )
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
