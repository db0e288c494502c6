"""Whole numbers as Go programs parse them (strconv.Atoi). Pure."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"([+-]?)0*([0-9]{1,19})", re.ASCII)


def atoi(text: str) -> int | None:
    """Return the number, or None if the text is not an optional sign and ASCII digits within 64
    bits.
    """
    match = _NUMBER.fullmatch(text)
    number = int(match[1] + match[2]) if match is not None else 2**63
    return number if -(2**63) <= number < 2**63 else None
