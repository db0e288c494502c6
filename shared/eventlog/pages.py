"""Pages of events, bounded in number and in payload bytes, and a bounded cache of unpacked blocks.

One event may be a thousand times as large as another, so a count alone does not bound a page.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator

from shared.eventlog.limits import MAX_PAGE_BYTES
from shared.events.envelope import Envelope

KEPT_BYTES = 16 << 20
# Estimated memory of an event in addition to its payload.
FACT_BYTES = 1_000


def page_of(
    envelopes: Iterable[Envelope], limit: int, limit_bytes: int = MAX_PAGE_BYTES
) -> list[Envelope]:
    """Return the first events: at most `limit`, up to the one reaching `limit_bytes`."""
    return next(cut(envelopes, limit, limit_bytes), []) if limit > 0 else []


def cut(envelopes: Iterable[Envelope], limit: int, limit_bytes: int) -> Iterator[list[Envelope]]:
    """Yield all events in parts with these bounds."""
    part: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        part.append(envelope)
        size += len(envelope.payload)
        if len(part) >= limit or size >= limit_bytes:
            yield part
            part, size = [], 0
    if part:
        yield part


class KeptBlocks:
    """A cache of the blocks read last: as many as fit into KEPT_BYTES, and at least one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[int, list[Envelope]]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, unpacked: Callable[[], list[Envelope]]) -> list[Envelope]:
        """Return the block; `unpacked` is called if it is not cached."""
        if key not in self._kept:
            block = unpacked()
            size = sum(len(envelope.payload) + FACT_BYTES for envelope in block)
            self._kept[key] = size, block
            self._bytes += size
        self._kept.move_to_end(key)
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            _, (size, _) = self._kept.popitem(last=False)
            self._bytes -= size
        return self._kept[key][1]

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0
