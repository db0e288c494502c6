"""Fields of untrusted JSON: the right type, or a refusal that names field, value and remedy.

Inside a parser a bad field is raised as `RefusedError` and caught once at the parser's entry point,
so that parsers read straight down. Callers only see `ManifestError` values. This module does not
know the meaning of the fields.
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
    """Why a manifest is refused: the JSON path of the field, its value, and the remedy."""

    field: str
    value: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field or 'the document'}: {self.value}: {self.remedy}"


class RefusedError(Exception):
    """Carries a `ManifestError` up to the parser's entry point."""

    def __init__(self, error: ManifestError) -> None:
        super().__init__(str(error))
        self.error = error


def refuse(field: str, value: object, remedy: str) -> RefusedError:
    """Return the refusal to raise for `field`."""
    return RefusedError(ManifestError(field, shown(value), remedy))


def shown(value: object) -> str:
    """Return a short, safe text of any JSON value."""
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
    """Return `path.key`, or `path["key"]` if the key contains dots or slashes. Cached: paths are
    few and every pod uses them.
    """
    step = f'["{key[:MAX_NAME_CHARS]}"]' if any(sign in key for sign in './[" ') else key
    if not path:
        return step
    return path + step if step.startswith("[") else f"{path}.{step}"


def mapping(doc: Json, key: str, path: str) -> Json:
    """Return the object at `key`. Absent and null read as empty."""
    value = doc.get(key)
    return {} if value is None else as_mapping(value, join(path, key))


def as_mapping(value: object, path: str) -> Json:
    """Return `value` as an object with text keys. None reads as empty."""
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


def part(obj: Json, name: str) -> dict[str, Any]:
    """Return a field of an object that is itself an object; {} if it is missing or something
    else.
    """
    value = obj.get(name)
    return value if isinstance(value, dict) else {}


def items(doc: Json, key: str, path: str) -> list[Any]:
    """Return the list at `key`. Absent and null read as empty."""
    value = doc.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise refuse(join(path, key), value, "write a list")
    if len(value) > MAX_ITEMS:
        raise refuse(join(path, key), value, f"write at most {MAX_ITEMS} entries")
    return value


def objects(doc: Json, key: str, path: str) -> list[tuple[str, Json]]:
    """Return the list of objects at `key`, each with its path."""
    entries = items(doc, key, path)
    paths = [f"{join(path, key)}[{i}]" for i in range(len(entries))]
    return [
        (entry_path, as_mapping(entry, entry_path))
        for entry_path, entry in zip(paths, entries, strict=True)
    ]


def text(doc: Json, key: str, path: str, default: str = "") -> str:
    """Return the text at `key`. Absent and null read as `default`."""
    value = doc.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise refuse(join(path, key), value, "write a text")
    if not is_unicode(value):
        raise refuse(join(path, key), value, "write valid Unicode (no lone surrogates)")
    return value


def is_unicode(value: str) -> bool:
    """Return False for texts that UTF-8 cannot encode: JSON escapes may contain half a surrogate
    pair.
    """
    return value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value)


def name(doc: Json, key: str, path: str) -> str:
    """Return a required object name: not empty, printable, without `/`, at most 320 characters."""
    value = text(doc, key, path)
    if not value or "/" in value or len(value) > MAX_NAME_CHARS or not value.isprintable():
        raise refuse(
            join(path, key), value, "write a name: lower case letters, digits, '-' and '.'"
        )
    return value


def integer(doc: Json, key: str, path: str, default: int = 0) -> int:
    """Return the 32-bit integer at `key`. Absent and null read as `default`."""
    value = doc.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**31:
        raise refuse(join(path, key), value, "write a whole number of at most 32 bits")
    return value


def flag(doc: Json, key: str, path: str) -> bool:
    """Return the boolean at `key`. Absent and null read as false."""
    value = doc.get(key)
    if value is not None and not isinstance(value, bool):
        raise refuse(join(path, key), value, "write true or false")
    return bool(value)


def texts(doc: Json, key: str, path: str) -> dict[str, str]:
    """Return a map of texts (labels, annotations, a node selector), sorted by key."""
    entries = mapping(doc, key, path)
    for entry, value in entries.items():
        if not isinstance(value, str) or not is_unicode(value):
            raise refuse(
                join(join(path, key), entry),
                value,
                "write a text (put numbers and booleans in quotes)",
            )
    return {entry: entries[entry] for entry in sorted(entries)}


def text_list(doc: Json, key: str, path: str) -> tuple[str, ...]:
    """Return the list of texts at `key`."""
    entries = items(doc, key, path)
    for i, value in enumerate(entries):
        if not isinstance(value, str) or not is_unicode(value):
            raise refuse(f"{join(path, key)}[{i}]", value, "write a text")
    return tuple(entries)


def amounts(doc: Json, key: str, path: str) -> Amounts:
    """Return a resource list: names to quantities, in millicpu, bytes and counts, sorted by name.
    Never negative.
    """
    quantities = mapping(doc, key, path)
    list_path = join(path, key)
    return {
        resource: _amount(resource, quantities[resource], join(list_path, resource))
        for resource in sorted(quantities)
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
