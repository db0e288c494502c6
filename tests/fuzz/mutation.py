"""Makes hostile inputs of valid ones: trees are altered, bytes are damaged. All randomness comes
from the given generator. This module does not know what the inputs mean.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    2**53,
    2**62,
    2**63,
    -(2**63),
    2**64,
    10**40,
    0.5,
    -0.0,
    1e308,
    "",
    " ",
    "a",
    "/",
    "..",
    "x" * 300,
    "\x00",
    "\ud7ff",
    "é",
    "1",
    "-1",
    "1e9",
    "0x10",
    "1Gi",
    "9999999999999999999Ei",
    "١٢",
    "0-3,7",
    "3-0",
    "true",
    "null",
    [],
    {},
    [[]],
    {"": ""},
    [None],
    {"name": None},
    [0] * 50,
)
TOKENS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"\\",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"null",
    b"1e999",
    b"- ",
    b"\n",
    b"&a *a",
    b"!!python/object:os.system ",
    b"<<: *a",
    b"---\n",
    b"? ",
    b"2026-99-99",
    b"0b1",
    b"NaN",
    b"\\u0000",
    b"\\ud800",
)


def altered(rng: random.Random, document: Any, others: list[Any]) -> Any:
    """Return a copy of a JSON-like tree with a few values changed."""
    made = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        made = _bend(rng, made, others)
    return made


def _bend(rng: random.Random, document: Any, others: list[Any]) -> Any:
    places = list(_places(document))
    if not places or rng.random() < 0.02:
        return copy.deepcopy(rng.choice(ODD))
    holder, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.45:
        holder[key] = copy.deepcopy(rng.choice(ODD))
    elif kind < 0.6:
        foreign = [(where, at) for where, at in _places(rng.choice(others))]
        if foreign:
            where, index = rng.choice(foreign)
            holder[key] = copy.deepcopy(where[index])
    elif kind < 0.7:
        del holder[key]
    elif kind < 0.8 and isinstance(holder, dict):
        holder[str(rng.choice(ODD))[:60]] = holder.pop(key)
    elif kind < 0.9 and isinstance(holder, list):
        holder.extend([copy.deepcopy(holder[key])] * rng.choice((1, 2, 30)))
    elif isinstance(holder[key], str):
        holder[key] = damaged(rng, holder[key].encode()).decode(errors="replace")
    elif isinstance(holder[key], int):
        holder[key] += rng.choice((-1, 1, 1000, -(10**6)))
    else:
        deep: Any = holder[key]
        for _ in range(rng.choice((2, 20, 200))):
            deep = [deep]
        holder[key] = deep
    return document


def _places(document: Any) -> Any:
    """Return every (container, key) of the tree."""
    keys = (
        list(document)
        if isinstance(document, dict)
        else range(len(document))
        if isinstance(document, list)
        else ()
    )
    for key in keys:
        yield document, key
        yield from _places(document[key])


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes with a few of them changed, lost, doubled or inserted."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        index = rng.randrange(len(made) + 1)
        kind = rng.random()
        if kind < 0.3 and made:
            made[index % len(made)] = rng.randrange(256)
        elif kind < 0.5:
            del made[index : index + rng.choice((1, 2, 8, 64))]
        elif kind < 0.7:
            made[index:index] = rng.choice(TOKENS)
        elif kind < 0.8:
            made[index:index] = made[index : index + rng.choice((4, 32, 200))]
        elif kind < 0.85:
            made[index:] = b""
        elif kind < 0.9:
            made[index:index] = rng.choice(TOKENS) * rng.choice((10, 1000, 3000))
        else:
            made[index:index] = rng.randbytes(rng.choice((1, 4, 16)))
    return bytes(made)


def as_json(rng: random.Random, document: Any, others: list[Any]) -> bytes:
    """Return an altered tree as JSON, sometimes with damaged bytes."""
    data = json.dumps(altered(rng, document, others)).encode()
    return damaged(rng, data) if rng.random() < 0.25 else data
