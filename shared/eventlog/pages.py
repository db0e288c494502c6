"""Facts by the page: what bounds one in number and in bytes of payloads; and blocks that were
unpacked, kept within a bound.

A fact may be a thousand times as large as another: who counts facts alone knows nothing of what a
page takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator

from shared.eventlog.limits import MAX_PAGE_BYTES
from shared.events.envelope import Envelope

KEPT_BYTES = 64 << 20
FACT_BYTES = 1_000
"""What a fact takes beside its payload, at most, for counting what is kept."""


def page_of(
    envelopes: Iterable[Envelope], limit: int, limit_bytes: int = MAX_PAGE_BYTES
) -> list[Envelope]:
    """The first of them: at most `limit`, and none after the one that reaches `limit_bytes`."""
    return next(cut(envelopes, limit, limit_bytes), []) if limit > 0 else []


def cut(envelopes: Iterable[Envelope], limit: int, limit_bytes: int) -> Iterator[list[Envelope]]:
    """All of them, in parts that are bounded so."""
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
    """Blocks that were read last, as many as KEPT_BYTES hold, and at least one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[int, list[Envelope]]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, unpacked: Callable[[], list[Envelope]]) -> list[Envelope]:
        """The block, which `unpacked` makes where it is not kept."""
        if key not in self._kept:
            made = unpacked()
            size = sum(len(envelope.payload) + FACT_BYTES for envelope in made)
            self._kept[key] = size, made
            self._bytes += size
        self._kept.move_to_end(key)
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            _, (gone, _) = self._kept.popitem(last=False)
            self._bytes -= gone
        return self._kept[key][1]

    def clear(self) -> None:
        """Nothing is kept."""
        self._kept.clear()
        self._bytes = 0
