"""Answer the auth callout of the NATS server in this process: its key, its password, its questions
to the Kubernetes API.

Key and password are created at every start and exist only in memory and in the server's
configuration. Must not know what a token permits (`node_logins`).
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import sys
from functools import partial
from os import environ

from lightkube.core.exceptions import ConfigError

from services.embedded.errors import EmbeddedError
from services.embedded.nats import Callout, EmbeddedNats
from services.embedded.node_logins import NodeLogins
from shared.bus import callout
from shared.bus.nkeys import Issuer
from shared.kube.client import KubeClient
from shared.kube.port import KubeUnavailableError
from shared.telemetry.reasons import plain

AGAIN_S = 1.0


class Logins:
    """Lets pods of one service account log in (`system:serviceaccount:NAMESPACE:NAME`). Raises
    EmbeddedError if there is no Kubernetes API to ask.
    """

    def __init__(self, user: str) -> None:
        self._user = user
        self._issuer = Issuer()
        self.callout = Callout(self._issuer.public, secrets.token_urlsafe(18))
        self._log = partial(print, "nats:", file=sys.stderr, flush=True)
        try:
            self._kube = KubeClient(environ.get("TOPOLOG_KUBECONFIG", ""), max_connections=4)
        except (KubeUnavailableError, ConfigError, OSError, ValueError) as error:
            raise EmbeddedError(
                f"TOPOLOG_NATS_LOGINS is set, and the Kubernetes API is unusable: {plain(error)}",
                "Mount a service account's token (k8s/components/exporter-tokens)",
            ) from error

    async def run(self, nats: EmbeddedNats) -> None:
        """Answer until cancelled. Reconnect if the server cannot be reached."""
        scheme, _, rest = nats.url.partition("://")
        url = f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
        judge = NodeLogins(self._issuer, self._kube, self._user, self._log).judge
        try:
            while True:
                try:
                    await callout.serve_requests(
                        url, self.callout.password, judge, self._log, _own(nats)
                    )
                except Exception as error:  # any error: without answers no exporter can log in
                    self._log(f"logins are not answered: {plain(error)}")
                await asyncio.sleep(AGAIN_S)
        finally:
            await self._kube.close()


def _own(nats: EmbeddedNats) -> ssl.SSLContext | None:
    """Return TLS to this server on loopback, without a host check: its certificate has the names
    that other machines use.
    """
    if nats.tls is None:
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
