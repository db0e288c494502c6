"""Who is answered: /livez always; health everybody; the rest by a certificate and a token where
they are asked for, and not too many at once.

An ASGI layer around a service's routes. Must not know what they do.
"""

from __future__ import annotations

import hmac
import ipaddress

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.runtime.secret_file import Token

MAX_REQUESTS = 200
TLS = "tls"
"""The extension (as in ASGI) that a connection has whose client has shown a certificate that was verified."""
ALWAYS = "/livez"
OPEN = ("/livez", "/healthz", "/readyz")
"""Probes carry no token, and health says nothing that must be kept."""


class Access:
    """`token` empty and no `certificate` asked for: everybody may ask everything."""

    def __init__(self, app: ASGIApp, token: Token = "", certificate: bool = False) -> None:
        self._app, self._token = app, token
        self._certificate = certificate
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or say why not."""
        path = scope.get("path", "")
        if self._running >= MAX_REQUESTS and path != ALWAYS:
            return await PlainTextResponse("too many requests at once; try again", 503)(
                scope, receive, send
            )
        if self._certificate and path not in OPEN and TLS not in scope.get("extensions", {}):
            refusal = PlainTextResponse(
                "a client certificate is needed, of the authority in TOPOLOG_HTTP_TLS_CLIENT_CA",
                403,
            )
            return await refusal(scope, receive, send)
        if path not in OPEN and not self._authorized(scope):
            refusal = PlainTextResponse(
                "a token is needed: Authorization: Bearer TOKEN, as in TOPOLOG_HTTP_TOKEN",
                401,
                {"WWW-Authenticate": "Bearer"},
            )
            return await refusal(scope, receive, send)
        self._running += 1
        try:
            return await self._app(scope, receive, send)
        finally:
            self._running -= 1

    def _authorized(self, scope: Scope) -> bool:
        token = self._token if isinstance(self._token, str) else self._token()
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        return not token or (
            len(given) == 1 and hmac.compare_digest(given[0], f"Bearer {token}".encode())
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
