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
    found = owner.get(key)
    if found is None:
        return {}
    return as_mapping(found, f"{path}{key}")


def as_mapping(found: object, path: str) -> Mapping[str, Any]:
    """Return `found` as an object with text keys."""
    if not isinstance(found, Mapping):
        raise InvalidObjectError(path or "document", found, "write an object here")
    return found


def objects(owner: Mapping[str, Any], key: str, path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the list of objects at `key`, each with its own path; empty if absent."""
    found = owner.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise InvalidObjectError(f"{path}{key}", found, "write a list here")
    return [
        (f"{path}{key}[{at}]", as_mapping(item, f"{path}{key}[{at}]"))
        for at, item in enumerate(found)
    ]


def text(owner: Mapping[str, Any], key: str, path: str, default: str = "") -> str:
    """Return the text at `key`, or the default."""
    found = owner.get(key)
    if found is None:
        return default
    if not isinstance(found, str):
        raise InvalidObjectError(f"{path}{key}", found, "write a text here")
    return found


def texts(owner: Mapping[str, Any], key: str, path: str) -> tuple[str, ...]:
    """Return the list of texts at `key`; empty if absent."""
    found = owner.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise InvalidObjectError(f"{path}{key}", found, "write a list of texts here")
    return tuple(found)


def whole(owner: Mapping[str, Any], key: str, path: str) -> int:
    """Return the integer at `key`, or 0."""
    found = owner.get(key)
    if found is None:
        return 0
    if isinstance(found, bool) or not isinstance(found, int) or not -(2**63) <= found < 2**63:
        raise InvalidObjectError(f"{path}{key}", found, "write an integer of at most 64 bits here")
    return found


def quantity(owner: Mapping[str, Any], key: str, path: str) -> Quantity:
    """Return the Kubernetes quantity at `key`, or zero."""
    found = owner.get(key)
    if found is None:
        return Quantity(0)
    try:
        return parse(found.strip() if isinstance(found, str) else found)
    except QuantityError as error:
        raise InvalidObjectError(
            f"{path}{key}", found, f"write a Kubernetes quantity such as 500m or 2Gi ({error})"
        ) from error


def quantities(owner: Mapping[str, Any], key: str, path: str) -> dict[str, Quantity]:
    """Return the resource list at `key`; empty if absent."""
    found = mapping(owner, key, path)
    return {name: quantity(found, name, f"{path}{key}.") for name in found}
