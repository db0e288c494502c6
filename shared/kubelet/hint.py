"""A topology hint: the NUMA nodes that a provider proposes for one resource, and whether that is
its best.

The shape that the Topology Manager and its providers share (KEP-693). This module must not know any
provider.
"""

from __future__ import annotations

import msgspec


class Hint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`mask` has bit i set for NUMA node i; None means "no preference". `preferred` marks the
    narrowest possible.
    """

    mask: int | None
    preferred: bool


ResourceHints = dict[str, list[Hint] | None]
"""Resource -> hints in mask enumeration order; None means "no preference", [] means "cannot be satisfied"."""

Hints = ResourceHints | None
"""What one provider answers for one container or pod; None (a nil map) means "no preference at all"."""
