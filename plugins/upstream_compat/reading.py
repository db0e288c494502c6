"""Reads untrusted JSON: each reader returns the wanted type, a default if absent, or raises
`InvalidObjectError` with the path.

Null counts as absent, as for Kubernetes' own decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugins.upstream_compat.errors import InvalidObjectError
from shared.domain.quantity import Quantity, QuantityError, parse


def mapping(owner: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return the object at `key`, or an empty one."""
    value = owner.get(key)
    if value is None:
        return {}
    return as_mapping(value, f"{path}{key}")


def as_mapping(value: object, path: str) -> Mapping[str, Any]:
    """Return `found` as an object with text keys."""
    if not isinstance(value, Mapping):
        raise InvalidObjectError(path or "document", value, "write an object here")
    return value


def objects(owner: Mapping[str, Any], key: str, path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the list of objects at `key`, each with its own path; empty if absent."""
    value = owner.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidObjectError(f"{path}{key}", value, "write a list here")
    return [
        (f"{path}{key}[{at}]", as_mapping(item, f"{path}{key}[{at}]"))
        for at, item in enumerate(value)
    ]


def text(owner: Mapping[str, Any], key: str, path: str, default: str = "") -> str:
    """Return the text at `key`, or the default."""
    value = owner.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise InvalidObjectError(f"{path}{key}", value, "write a text here")
    return value


def texts(owner: Mapping[str, Any], key: str, path: str) -> tuple[str, ...]:
    """Return the list of texts at `key`; empty if absent."""
    value = owner.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidObjectError(f"{path}{key}", value, "write a list of texts here")
    return tuple(value)


def whole(owner: Mapping[str, Any], key: str, path: str) -> int:
    """Return the integer at `key`, or 0."""
    value = owner.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise InvalidObjectError(f"{path}{key}", value, "write an integer of at most 64 bits here")
    return value


def quantity(owner: Mapping[str, Any], key: str, path: str) -> Quantity:
    """Return the Kubernetes quantity at `key`, or zero."""
    value = owner.get(key)
    if value is None:
        return Quantity(0)
    try:
        return parse(value.strip() if isinstance(value, str) else value)
    except QuantityError as error:
        raise InvalidObjectError(
            f"{path}{key}", value, f"write a Kubernetes quantity such as 500m or 2Gi ({error})"
        ) from error


def quantities(owner: Mapping[str, Any], key: str, path: str) -> dict[str, Quantity]:
    """Return the resource list at `key`; empty if absent."""
    raw_amounts = mapping(owner, key, path)
    return {name: quantity(raw_amounts, name, f"{path}{key}.") for name in raw_amounts}
