"""Mask secrets in text and values that are shown or logged."""

from __future__ import annotations

import re

from shared.domain.secret_url import masked

_SECRET_KEY = re.compile(r"passw|secret|token|authorization|credential|private_key", re.IGNORECASE)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")


def scrub_text(text: str) -> str:
    """Mask credentials: userinfo of URLs, authorization values."""
    return _BEARER.sub(r"\1 ***", masked(text))


def scrub(value: object, key: str = "") -> object:
    """Mask the secrets in a value and the values that it contains."""
    if key and _SECRET_KEY.search(key) and value not in ("", None):
        return "***"
    if isinstance(value, str):
        return scrub_text(value)
    if isinstance(value, dict):
        return {name: scrub(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(inner) for inner in value]
    return value
