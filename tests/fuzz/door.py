"""A door: how its inputs are made, how one is processed, and which exceptions it declares."""

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
