"""What a Kubernetes pod's own token says of the pod: on which node it runs, and until when the
token holds.

A kubelet gets such tokens for pods of its own node alone, and the API server writes the node into
them (Kubernetes 1.30 and newer). Pure: nothing is proven here; whoever must believe a token asks
the API server (TokenReview). Source: RFC 7519; kubernetes.io, bound service account tokens.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

AUDIENCE = "topolog-nats"
"""Whom such a token is for: NATS, and nobody else."""
MAX_BYTES = 8192
_PARTS = 3


class Claims(msgspec.Struct, frozen=True):
    """The node's name, and the end of the token in seconds since 1970."""

    node: str
    until_s: int


class _Named(msgspec.Struct):
    name: str


class _Kubernetes(msgspec.Struct):
    node: _Named | None = None


class _Payload(msgspec.Struct):
    exp: int
    kubernetes: _Kubernetes = msgspec.field(name="kubernetes.io")


def claims(token: str) -> Claims:
    """What the token says. Raises ValueError, which never holds the token."""
    parts = token.split(".")
    if len(token) > MAX_BYTES or len(parts) != _PARTS or not all(parts):
        raise ValueError("it is no token of a pod")
    try:
        payload = msgspec.json.decode(decoded(parts[1]), type=_Payload)
    except (msgspec.MsgspecError, UnicodeError):
        raise ValueError("it is no token of a pod") from None
    if payload.kubernetes.node is None or not payload.kubernetes.node.name:
        raise ValueError(
            "it names no node; Kubernetes 1.30 and newer writes it into tokens of pods"
        )
    return Claims(payload.kubernetes.node.name, payload.exp)


def decoded(part: str) -> bytes:
    """A part of a token. Raises ValueError."""
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise ValueError("it is no token of a pod") from None


def encoded(data: bytes) -> str:
    """A part of a token."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
