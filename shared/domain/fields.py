"""Reading fields of untrusted JSON: the right type, or a refusal that names field, value and
remedy.

Inside a parser a bad field is thrown as `RefusedError` and caught once at its door, so that parsers
read straight down; outside only `ManifestError` values are seen. This module must not know what the
fields mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from shared.domain.quantity import QuantityError, amount
from shared.domain.resources import Amounts

MAX_AMOUNT = 2**56
MAX_ITEMS = 10_000
MAX_NAME_CHARS = 320
_SHOWN_CHARS = 80

Json = Mapping[str, Any]


class ManifestError(msgspec.Struct, frozen=True):
    """Why a manifest is refused: the JSON path of the field, what stood there, and what to write
    instead.
    """

    field: str
    value: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field or 'the document'}: {self.value}: {self.remedy}"


class RefusedError(Exception):
    """Carries a `ManifestError` up to the parser's door."""

    def __init__(self, error: ManifestError) -> None:
        super().__init__(str(error))
        self.error = error


def refuse(field: str, value: object, remedy: str) -> RefusedError:
    """The refusal to raise for `field`."""
    return RefusedError(ManifestError(field, shown(value), remedy))


def shown(value: object) -> str:
    """A short, safe text of any JSON value."""
    if isinstance(value, Mapping):
        return f"an object of {len(value)} keys"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)} items"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


@lru_cache(4096)
def join(path: str, key: str) -> str:
    """`path.key`, or `path["key"]` where the key itself holds dots or slashes. Paths are few, and
    asked for by every pod.
    """
    step = f'["{key[:MAX_NAME_CHARS]}"]' if any(sign in key for sign in './[" ') else key
    return step if not path else path + step if step.startswith("[") else f"{path}.{step}"


def mapping(doc: Json, key: str, path: str) -> Json:
    """The object at `key`; absent and null read as empty."""
    value = doc.get(key)
    return {} if value is None else as_mapping(value, join(path, key))


def as_mapping(value: object, path: str) -> Json:
    """`value` as an object with text keys; None reads as empty."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refuse(path, value, "write an object (a mapping of names to values)")
    if len(value) > MAX_ITEMS:
        raise refuse(path, value, f"write at most {MAX_ITEMS} entries")
    for key in value:
        if not isinstance(key, str) or not is_unicode(key):
            raise refuse(path, key, "use text as names")
    return value


def items(doc: Json, key: str, path: str) -> list[Any]:
    """The list at `key`; absent and null read as empty."""
    value = doc.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise refuse(join(path, key), value, "write a list")
    if len(value) > MAX_ITEMS:
        raise refuse(join(path, key), value, f"write at most {MAX_ITEMS} entries")
    return value


def objects(doc: Json, key: str, path: str) -> list[tuple[str, Json]]:
    """The list of objects at `key`, each with its path."""
    found = items(doc, key, path)
    paths = [f"{join(path, key)}[{i}]" for i in range(len(found))]
    return [(where, as_mapping(entry, where)) for where, entry in zip(paths, found, strict=True)]


def text(doc: Json, key: str, path: str, default: str = "") -> str:
    """The text at `key`; absent and null read as `default`."""
    value = doc.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise refuse(join(path, key), value, "write a text")
    if not is_unicode(value):
        raise refuse(join(path, key), value, "write valid Unicode (no lone surrogates)")
    return value


def is_unicode(value: str) -> bool:
    """False for texts that no UTF-8 can hold: JSON escapes can smuggle in half a surrogate pair."""
    return value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value)


def name(doc: Json, key: str, path: str) -> str:
    """A required object name: not empty, printable, without `/`, at most 320 characters."""
    value = text(doc, key, path)
    if not value or "/" in value or len(value) > MAX_NAME_CHARS or not value.isprintable():
        raise refuse(
            join(path, key), value, "write a name: lower case letters, digits, '-' and '.'"
        )
    return value


def integer(doc: Json, key: str, path: str, default: int = 0) -> int:
    """The 32-bit integer at `key`; absent and null read as `default`."""
    value = doc.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**31:
        raise refuse(join(path, key), value, "write a whole number of at most 32 bits")
    return value


def flag(doc: Json, key: str, path: str) -> bool:
    """The boolean at `key`; absent and null read as false."""
    value = doc.get(key)
    if value is not None and not isinstance(value, bool):
        raise refuse(join(path, key), value, "write true or false")
    return bool(value)


def texts(doc: Json, key: str, path: str) -> dict[str, str]:
    """A map of texts (labels, annotations, a node selector), sorted by key."""
    found = mapping(doc, key, path)
    for entry, value in found.items():
        if not isinstance(value, str) or not is_unicode(value):
            raise refuse(
                join(join(path, key), entry),
                value,
                "write a text (put numbers and booleans in quotes)",
            )
    return {entry: found[entry] for entry in sorted(found)}


def text_list(doc: Json, key: str, path: str) -> tuple[str, ...]:
    """A list of texts."""
    found = items(doc, key, path)
    for i, value in enumerate(found):
        if not isinstance(value, str) or not is_unicode(value):
            raise refuse(f"{join(path, key)}[{i}]", value, "write a text")
    return tuple(found)


def amounts(doc: Json, key: str, path: str) -> Amounts:
    """A resource list: names to quantities, in millicpu, bytes and counts, sorted by name; never
    negative.
    """
    found = mapping(doc, key, path)
    where = join(path, key)
    return {
        resource: _amount(resource, found[resource], join(where, resource))
        for resource in sorted(found)
    }


def _amount(resource: str, value: object, path: str) -> int:
    if not resource or len(resource) > MAX_NAME_CHARS or not resource.isprintable():
        raise refuse(
            path, resource, "write a resource name such as cpu, memory or vendor.example/device"
        )
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise refuse(path, value, "write a quantity such as 2, 500m or 4Gi")
    try:
        counted = amount(resource, value)
    except QuantityError as error:
        raise refuse(path, value, f"write a quantity such as 2, 500m or 4Gi ({error})") from error
    if counted < 0:
        raise refuse(path, value, "write an amount of zero or more")
    if counted > MAX_AMOUNT:
        raise refuse(path, value, f"write a smaller amount (at most {MAX_AMOUNT} in base units)")
    return counted
