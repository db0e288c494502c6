"""What a fact is about: a pod, a node, both, or neither. Every fact says so itself, so that no
reader guesses by field names.
"""

from __future__ import annotations

from typing import NamedTuple


class About(NamedTuple):
    """`pod` is a uid, `node` a name; "" where the fact is about none."""

    pod: str = ""
    node: str = ""
