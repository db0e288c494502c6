"""Whole numbers as Go's programs read them. Pure. Source: strconv.Atoi."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"([+-]?)0*([0-9]{1,19})", re.ASCII)


def atoi(text: str) -> int | None:
    """An optional sign and ASCII digits within 64 bits, any zeros before them, nothing around them;
    None for anything else.
    """
    found = _NUMBER.fullmatch(text)
    number = int(found[1] + found[2]) if found is not None else 2**63
    return number if -(2**63) <= number < 2**63 else None
