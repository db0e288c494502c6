"""Access to a service's HTTP port: /livez always, health without a token, everything else with the
token and the client certificate that the settings require, and a limited number of requests at
once.

Requests that a web page makes a browser send are refused:

1. DNS rebinding: a page's own host name may resolve to this port's address, and the page may then
   read the answers. The name is in the Host header, so only addresses and names that public DNS
   cannot contain are accepted, unless a token, a certificate or TLS protects the port.
2. Cross-site posts: without a preflight, a browser only sends the content types of forms. A request
   that may change something must have application/json.

This module is an ASGI layer around a service's routes.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Sequence

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.runtime.secret_file import Token

MAX_REQUESTS = 200
# The ASGI extension of a connection with a verified client certificate.
TLS = "tls"
ALWAYS = "/livez"
# Probes carry no token, and health contains nothing secret.
OPEN = ("/livez", "/healthz", "/readyz")
READING = ("GET", "HEAD", "OPTIONS")
# Names of Services inside a cluster, and of machines in a private network.
PRIVATE_SUFFIXES = (".svc", ".cluster.local", ".localhost", ".local", ".internal")


class Access:
    """Without `token` and `certificate` any client may ask everything. `hosts` are further accepted
    host names."""

    def __init__(
        self,
        app: ASGIApp,
        token: Token = "",
        certificate: bool = False,
        hosts: Sequence[str] = (),
    ) -> None:
        self._app, self._token = app, token
        self._certificate = certificate
        self._hosts = frozenset(host.lower() for host in (*hosts, socket.gethostname()))
        self._running = 0
        self._open = set(OPEN)
        self._open_below: tuple[str, ...] = ()

    def open(self, path: str, prefix: str) -> None:
        """Serve a path and all paths below `prefix` without token and certificate."""
        self._open.add(path)
        self._open_below += (prefix,)

    def _is_open(self, path: str) -> bool:
        return path in self._open or path.startswith(self._open_below)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request or refuse it."""
        if refusal := self._refusal(scope):
            return await refusal(scope, receive, send)
        self._running += 1
        try:
            return await self._app(scope, receive, send)
        finally:
            self._running -= 1

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        path = scope.get("path", "")
        if self._running >= MAX_REQUESTS and path != ALWAYS:
            return PlainTextResponse("too many requests at once; try again", 503)
        if not self._is_protected(scope) and not self._names_this_server(scope):
            return PlainTextResponse(
                "the Host header does not name this server; use its address, or add the name to "
                "TOPOLOG_HTTP_ALLOWED_HOSTS",
                421,
            )
        if scope.get("method") not in READING and not _is_json(scope):
            return PlainTextResponse("Content-Type must be application/json", 415)
        if self._certificate and not self._is_open(path) and TLS not in scope.get("extensions", {}):
            return PlainTextResponse(
                "a client certificate of the authority in TOPOLOG_HTTP_TLS_CLIENT_CA is required",
                403,
            )
        if not self._is_open(path) and not self._authorized(scope):
            return PlainTextResponse(
                "a token is required: Authorization: Bearer TOKEN, as in TOPOLOG_HTTP_TOKEN",
                401,
                {"WWW-Authenticate": "Bearer"},
            )
        return None

    def _is_protected(self, scope: Scope) -> bool:
        return bool(self._token) or self._certificate or scope.get("scheme") == "https"

    def _names_this_server(self, scope: Scope) -> bool:
        hosts = _headers(scope, b"host")
        if len(hosts) != 1:
            return not hosts and scope.get("http_version") == "1.0"
        name = host_name(hosts[0].decode("latin-1"))
        return name in self._hosts or is_private(name)

    def _authorized(self, scope: Scope) -> bool:
        token = self._token if isinstance(self._token, str) else self._token()
        credentials = _headers(scope, b"authorization")
        return not token or (
            len(credentials) == 1
            and hmac.compare_digest(credentials[0], f"Bearer {token}".encode())
        )


def host_name(header: str) -> str:
    """Return the name or address in a Host header, without the port."""
    name, _, port = header.rpartition(":")
    if not name or not port.isdigit():
        name = header
    return name.strip("[]").rstrip(".").lower()


def is_private(name: str) -> bool:
    """Return whether public DNS cannot answer for this name: an address, a name without a dot, or
    a private suffix."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(name) and ("." not in name or name.endswith(PRIVATE_SUFFIXES))
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _headers(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope.get("headers", ()) if name == wanted]


def _is_json(scope: Scope) -> bool:
    types = _headers(scope, b"content-type")
    return len(types) == 1 and types[0].partition(b";")[0].strip().lower() == b"application/json"
