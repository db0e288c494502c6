"""What a door is: how inputs are made for it, what it does with one, and which exceptions it
declares.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec


class Door(msgspec.Struct, frozen=True):
    """`enter` does with an input what the service behind the door does; all that it raises beyond
    `declared` is a finding.
    """

    name: str
    says: str
    make: Callable[[random.Random], bytes]
    enter: Callable[[bytes], None]
    declared: tuple[type[Exception], ...] = ()
