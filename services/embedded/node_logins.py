"""Who an exporter is, by the token that its kubelet gave to its pod: it may speak for the node that
the pod runs on.

A kubelet gets tokens for pods of its own node alone, and the API server says whether a token is
good and for which node: nobody hands out keys, and a node that joins needs none. Must not know how
NATS asks (`shared.bus.callout`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from services.embedded.nats_credentials import rights
from shared.bus import callout, pod_tokens
from shared.bus.callout import Grant, LoginRequest
from shared.bus.nkeys import Issuer
from shared.kube.port import Answer, Lost, Object

ACCOUNT = "$G"
"""NATS' own name for the account of servers that are told of none."""
NODE = "authentication.kubernetes.io/node-name"
_REMEDIES = {
    401: "is a service account's token mounted into NATS' pod?",
    403: "grant create on tokenreviews.authentication.k8s.io (k8s/components/exporter-tokens)",
}


class Refused(ValueError):
    """Somebody may not come in; says why, and never what was shown."""


class Reviews(Protocol):
    """Whoever knows whether a token is good."""

    async def review_token(self, token: str, audience: str) -> Answer | Lost:
        """A TokenReview in `body`."""


class _User(msgspec.Struct):
    username: str = ""
    extra: dict[str, list[str]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] | None = None


class _Review(msgspec.Struct):
    status: _Status


class NodeLogins:
    """Judges clients by their tokens. `user` is the service account that exporters have
    (`system:serviceaccount:NAMESPACE:NAME`); `said(problem)` hears why somebody was refused, once
    for the same words in a row."""

    def __init__(
        self, issuer: Issuer, reviews: Reviews, user: str, said: Callable[[str], None]
    ) -> None:
        self._issuer = issuer
        self._reviews = reviews
        self._user = user
        self._said = said
        self._told = ""

    async def judge(self, who: LoginRequest) -> bytes:
        """The answer to a server's question."""
        now_s = int(time.time())
        try:
            grant = await self._granted(who.token)
        except Refused as refused:
            if str(refused) != self._told:
                self._told = str(refused)
                self._said(f"a client was refused: {refused}")
            return callout.denied(self._issuer, who, str(refused), now_s)
        self._told = ""
        return callout.granted(self._issuer, who, grant, ACCOUNT, now_s)

    async def _granted(self, token: str) -> Grant:
        """What whoever shows the token may do. The API server is not asked about what is no token
        at all.
        """
        try:
            claims = pod_tokens.claims(token)
        except ValueError as error:
            raise Refused(
                f"shown a token, {error}" if token else "it shows neither password nor token"
            ) from None
        answer = await self._reviews.review_token(token, pod_tokens.AUDIENCE)
        if isinstance(answer, Lost) or not answer.ok:
            raise Refused(f"its token could not be judged: {_problem(answer)}")
        node = judged(answer.body, self._user)
        return Grant(node, **rights(node, [node]), until_s=claims.until_s)


def judged(body: Object, user: str) -> str:
    """The node for which a reviewed token speaks. Raises Refused."""
    try:
        status = msgspec.convert(body, _Review).status
    except msgspec.ValidationError as error:
        raise Refused(f"the API server's answer is no TokenReview: {error}") from None
    if not status.authenticated:
        raise Refused("its token is not (or no longer) good")
    if pod_tokens.AUDIENCE not in (status.audiences or ()):
        raise Refused(f"its token is not for {pod_tokens.AUDIENCE}")
    if status.user.username != user:
        raise Refused(f"its token is of {status.user.username[:120]!r}, and exporters are {user!r}")
    nodes = (status.user.extra or {}).get(NODE) or []
    if len(nodes) != 1 or not nodes[0]:
        raise Refused("the API server names no node for its token; Kubernetes 1.30 and newer does")
    return nodes[0]


def _problem(answer: Answer | Lost) -> str:
    if isinstance(answer, Lost):
        return answer.message
    said = " ".join(answer.message[:200].split())
    return f"answered {answer.status} {said}; {_REMEDIES.get(answer.status, 'see what the API server says')}"
