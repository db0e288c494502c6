"""The protocol of a hint provider, and the book of zones that it reads.

Hints are the kubelet's: masks over zone ids, preferred where no smaller set of zones could ever hold the amount (KEP-693).
Amounts, not CPU or device ids: enough to know which hints there are, as zones only differ by what they have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from shared.domain.resources import Amounts
from shared.kubelet.hint import Hints


class ZoneBook(msgspec.Struct, frozen=True):
    """A node's zones in one state. `size` is what counts for preference (whole capacity, allocatable memory), `free` what is
    left, both zone id -> amounts. `groups` is zone id -> mask of the zones that it shares memory blocks with (itself alone
    when it has none); `used` are zones that hold memory blocks. `reuse` is resource -> mask of zones in which an init
    container of this pod left some of it."""

    size: Mapping[int, Amounts]
    free: Mapping[int, Amounts]
    groups: Mapping[int, int] = {}
    used: frozenset[int] = frozenset()
    reuse: Mapping[str, int] = {}


class HintProvider(Protocol):
    """One of the kubelet's managers."""

    @property
    def name(self) -> str:
        """For people."""

    def owns(self, resource: str) -> bool:
        """Does this manager hand the resource out?"""

    def hints(self, asked: Amounts, book: ZoneBook) -> Hints:
        """Hints for the owned resources in `asked`; None where it asks for none of them."""
