"""Kubernetes quantities: are they well formed, how do they compare, how are they written. Must not
know objects.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

PATTERN = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
WRONG_QUANTITY = f"quantities must match the regular expression '{PATTERN}'"

_FORM = re.compile(
    r"^(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>(?:[KMGTPE]i)|[numkMGTPE]|[eE][+-]?\d+)?$"
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -3, "u": -2, "m": -1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


@lru_cache(maxsize=4096)
def value_of(text: str) -> Fraction | None:
    """Return the exact value, None if the text is no quantity."""
    parsed = _FORM.match(text)
    if parsed is None:
        return None
    suffix = parsed["suffix"] or ""
    number = Fraction(parsed["number"])
    if suffix in _BINARY:
        return number * int(1024 ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return number * Fraction(
            10 ** (3 * max(_DECIMAL[suffix], 0)), 10 ** (3 * max(-_DECIMAL[suffix], 0))
        )
    exponent = int(suffix[1:]) if suffix else 0
    if abs(exponent) > 32:
        return None
    return number * Fraction(10 ** max(exponent, 0), 10 ** max(-exponent, 0))


@lru_cache(maxsize=4096)
def canonical(value: str | int | float) -> str | None:
    """Return a quantity in the API server's form (`0.5` -> `500m`, `1024Mi` -> `1Gi`), None if the
    value is no quantity.
    """
    text = str(value)
    exact = value_of(text)
    if exact is None:
        return None
    parsed = _FORM.match(text)
    suffix = (parsed["suffix"] or "") if parsed else ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix not in _BINARY:
        return text
    if suffix in _BINARY and abs(exact) >= 1024 and exact.denominator == 1:
        return _binary(int(exact))
    return _decimal(exact)


def written(value: Fraction, binary: bool) -> str:
    """Return a value as the server writes it after a sum."""
    return (
        _binary(int(value))
        if binary and value >= 1024 and value.denominator == 1
        else _decimal(value)
    )


def _binary(value: int) -> str:
    for suffix, power in sorted(_BINARY.items(), key=lambda item: -item[1]):
        if value and value % 1024**power == 0:
            return f"{value // 1024**power}{suffix}"
    return str(value)


def _decimal(value: Fraction) -> str:
    if value == 0:
        return "0"
    nano = -((-abs(value) * 10**9) // 1)
    sign = "-" if value < 0 else ""
    amount = int(nano)
    for suffix, power in (
        ("E", 27),
        ("P", 24),
        ("T", 21),
        ("G", 18),
        ("M", 15),
        ("k", 12),
        ("", 9),
        ("m", 6),
        ("u", 3),
    ):
        if amount % 10**power == 0:
            return f"{sign}{amount // 10**power}{suffix}"
    return f"{sign}{amount}n"


def canonical_map(amounts: Any) -> dict[str, str] | None:
    """Return a resource list in canonical form without values below a thousandth; None if a value
    is not a quantity.
    """
    result: dict[str, str] = {}
    for name, value in (amounts or {}).items():
        text = (
            canonical(value)
            if isinstance(value, str | int | float) and not isinstance(value, bool)
            else None
        )
        if text is None:
            return None
        result[name] = (
            text
            if text[-1] not in "nu"
            else _decimal(Fraction(math.ceil((value_of(text) or 0) * 1000), 1000))
        )
    return result
