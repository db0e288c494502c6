"""Pod specs that were read already. A pod's object changes many times in its life, its spec hardly
ever, and reading a manifest costs a hundred times more than comparing its bytes.

The memory of one leader's watch, by uid. Must not know what a spec means.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec
import xxhash

_encode = msgspec.json.Encoder(order="deterministic").encode
PRUNE_ABOVE = 1000


class SeenSpecs:
    """Fingerprints of specs without `nodeName`, which the binding sets."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._prune_at = PRUNE_ABOVE

    def same(self, uid: str, spec: dict[str, Any]) -> bool:
        """Return True if `spec` was noted for `uid`."""
        return uid in self._seen and self._seen[uid] == _fingerprint(spec)

    def note(self, uid: str, spec: dict[str, Any]) -> None:
        """Remember that this spec was read and compared with the ledger."""
        self._seen[uid] = _fingerprint(spec)

    def prune(self, live: Container[str]) -> None:
        """Forget pods that ended, now and then: at most twice the live pods are kept."""
        if len(self._seen) >= self._prune_at:
            self._seen = {uid: print_ for uid, print_ in self._seen.items() if uid in live}
            self._prune_at = max(PRUNE_ABOVE, 2 * len(self._seen))

    def clear(self) -> None:
        """Forget everything: another leader may have appended other events meanwhile."""
        self._seen.clear()


class ReadOnlySeenSpecs(SeenSpecs):
    """The same specs without notes, for comparisons whose events may never be appended."""

    def __init__(self, specs: SeenSpecs) -> None:
        super().__init__()
        self._specs = specs

    def same(self, uid: str, spec: dict[str, Any]) -> bool:
        return self._specs.same(uid, spec)

    def note(self, uid: str, spec: dict[str, Any]) -> None:
        """Ignore it."""


def _fingerprint(spec: dict[str, Any]) -> int:
    return xxhash.xxh64_intdigest(
        _encode({name: value for name, value in spec.items() if name != "nodeName"})
    )
