"""Answers NATS of this process when it asks who a client is: its key, its password, its questions
to the Kubernetes API.

Key and password are made at every start and never leave memory but in the server's own
configuration. Must not know what a token is good for (`node_logins`).
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
    """Lets pods of one service account in (`system:serviceaccount:NAMESPACE:NAME`). Raises
    EmbeddedError where the Kubernetes API cannot be asked."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._issuer = Issuer()
        self.callout = Callout(self._issuer.public, secrets.token_urlsafe(18))
        self._told = partial(print, "nats:", file=sys.stderr, flush=True)
        try:
            self._kube = KubeClient(environ.get("TOPOLOG_KUBECONFIG", ""), max_connections=4)
        except (KubeUnavailableError, ConfigError, OSError, ValueError) as error:
            told = f"TOPOLOG_NATS_LOGINS is set, and the Kubernetes API cannot be asked: {plain(error)}"
            raise EmbeddedError(
                told, "Mount a service account's token (k8s/components/exporter-tokens)"
            ) from error

    async def run(self, nats: EmbeddedNats) -> None:
        """Answer for ever; ends by cancellation. While the server cannot be reached, it is tried
        again.
        """
        scheme, _, rest = nats.url.partition("://")
        url = f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
        judge = NodeLogins(self._issuer, self._kube, self._user, self._told).judge
        try:
            while True:
                try:
                    await callout.serve_requests(
                        url, self.callout.password, judge, self._told, _own(nats)
                    )
                except Exception as error:  # whatever it is: without answers no exporter comes in
                    self._told(f"nobody says who may come in: {plain(error)}")
                await asyncio.sleep(AGAIN_S)
        finally:
            await self._kube.close()


def _own(nats: EmbeddedNats) -> ssl.SSLContext | None:
    """TLS to this very server, on loopback: its certificate is for the names that others call it
    by.
    """
    if nats.tls is None:
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
