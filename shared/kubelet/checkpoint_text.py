"""How the kubelet's Go code writes checkpoint files: its JSON, the one-line dump that it hashes,
and the hash.

The checksum is FNV-32a over a dump of the Go value (go-spew, `%#v`, map keys sorted). This module
does not know the meaning of the files. Source: kubelet 1.36 checkpointmanager/checksum,
k8s.io/apimachinery/pkg/util/dump.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

K = TypeVar("K", str, int)
V = TypeVar("V")

NIL = "<nil>"
_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193
_HTML = (
    ("&", "\\u0026"),
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)


def fnv32a(text: str) -> int:
    """Return FNV-1a, 32 bits, of the UTF-8 text."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def go_json(document: Any) -> bytes:
    """Return the document as Go's encoding/json writes it: no blanks, HTML signs escaped. The
    caller decides the key order.
    """
    text = msgspec.json.encode(document).decode()
    for sign, escaped in _HTML:
        text = text.replace(sign, escaped)
    return text.encode()


def string_order(entries: Mapping[int, V]) -> dict[str, V]:
    """Integer keys as Go's JSON orders them: as text."""
    return {key: entries[int(key)] for key in sorted(str(key) for key in entries)}


def dump_map(entries: Mapping[K, V] | None, dump_value: Callable[[V], str]) -> str:
    """Return a Go map as in the dump: `map[k:v k:v]`, keys ascending. A nil map is `<nil>`."""
    if entries is None:
        return NIL
    return "map[" + " ".join(f"{key}:{dump_value(entries[key])}" for key in sorted(entries)) + "]"


def dump_list(entries: Iterable[V] | None, dump_value: Callable[[V], str] = str) -> str:
    """A Go slice in the dump: `[a b]`; a nil slice is `<nil>`."""
    return NIL if entries is None else "[" + " ".join(dump_value(entry) for entry in entries) + "]"
