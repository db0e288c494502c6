"""Which pod specs were read already: a pod's object changes many times in its life, its spec hardly
ever.

A memory of one leader's watch, by uid: reading a manifest costs a hundred times more than comparing
its bytes. Must not know what a spec means.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec
import xxhash

_encode = msgspec.json.Encoder(order="deterministic").encode
PRUNE_ABOVE = 1000


class SeenSpecs:
    """Fingerprints of specs, `nodeName` left out: the binding sets it."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._prune_at = PRUNE_ABOVE

    def same(self, uid: str, spec: dict[str, Any]) -> bool:
        """True when `spec` is the one that was noted for `uid`."""
        return uid in self._seen and self._seen[uid] == _fingerprint(spec)

    def note(self, uid: str, spec: dict[str, Any]) -> None:
        """This spec was read and compared with the ledger."""
        self._seen[uid] = _fingerprint(spec)

    def prune(self, live: Container[str]) -> None:
        """Forget pods that are not live any more, now and then: bounded by twice the live pods."""
        if len(self._seen) >= self._prune_at:
            self._seen = {uid: found for uid, found in self._seen.items() if uid in live}
            self._prune_at = max(PRUNE_ABOVE, 2 * len(self._seen))

    def clear(self) -> None:
        """Nothing was seen: another leader may have told other things in between."""
        self._seen.clear()


class ReadOnlySeenSpecs(SeenSpecs):
    """The same specs, of which nothing more is noted: for comparing what may never be told."""

    def __init__(self, sightings: SeenSpecs) -> None:
        super().__init__()
        self._of = sightings

    def same(self, uid: str, spec: dict[str, Any]) -> bool:
        return self._of.same(uid, spec)

    def note(self, uid: str, spec: dict[str, Any]) -> None:
        """Only what is told counts as read."""


def _fingerprint(spec: dict[str, Any]) -> int:
    return xxhash.xxh64_intdigest(
        _encode({name: value for name, value in spec.items() if name != "nodeName"})
    )
