"""TLS to NATS: wanted by a URL (`tls://HOST`, or `?ca=FILE` with the authorities whose certificates count), and then insisted on.

nats-py encrypts when the server asks for it, and tells the password in the clear to one that does not: not here.
"""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.telemetry.reasons import plain


class Insistent(Client):
    """A client that tells nothing to a server without TLS, once it was given a TLS context."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self.options.get("tls") is not None and not info.get("tls_required"):
            raise NatsError(
                "the server offers no TLS, which TOPOLOG_NATS_URL asks for; give it a certificate, or write nats:// without ca="
            )
        await super()._process_info(info, initial_connection)


def wanted(url: str) -> bool:
    """Whether some server of the URL is to be reached by TLS alone."""
    return any(one.strip().startswith("tls://") for one in url.split(",")) or bool(authorities(url))


def authorities(url: str) -> str:
    """The file that `ca=` names first; empty for the system's own."""
    found = [parse_qs(urlsplit(one.strip()).query).get("ca", [""])[0] for one in url.split(",")]
    return next(filter(None, found), "")


def context(url: str) -> ssl.SSLContext:
    """Who is believed. Raises NatsError with the file's name."""
    file = authorities(url)
    try:
        return ssl.create_default_context(cafile=file or None)
    except OSError as error:
        told = f"{file}, which TOPOLOG_NATS_URL names by ca=, holds no certificates that can be read ({plain(error)})"
        raise NatsError(told) from None
