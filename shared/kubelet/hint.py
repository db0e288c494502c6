"""A topology hint: the NUMA nodes that a provider proposes for one resource, and whether it prefers
them.

The Topology Manager and its providers share this form (KEP-693). This module does not know any
provider.
"""

from __future__ import annotations

import msgspec


class Hint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A mask with bit i set for NUMA node i, or None for "no preference". `preferred` marks the
    narrowest possible.
    """

    mask: int | None
    preferred: bool


# Resource -> hints in mask enumeration order. None means "no preference", [] means "cannot be
# satisfied".
ResourceHints = dict[str, list[Hint] | None]

# The answer of one provider for one container or pod. None (a nil map) means "no preference at
# all".
Hints = ResourceHints | None
