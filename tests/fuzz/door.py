"""A door: how its inputs are made, how one is processed, and which exceptions it declares."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec


class Door(msgspec.Struct, frozen=True):
    """A place where input from outside enters. `enter` handles an input as the service does. An
    exception that is not in `declared` is a finding.
    """

    name: str
    says: str
    make: Callable[[random.Random], bytes]
    enter: Callable[[bytes], None]
    declared: tuple[type[Exception], ...] = ()
