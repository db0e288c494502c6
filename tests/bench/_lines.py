"""The lines of a long history's file, six times as quick as `history_file.line_of` writes them.

1. Once as many pods live as the nodes hold, each pod brings the same events but for a few numbers.
2. `History` writes the events of one pod, in which these numbers are placeholders. From them comes
   one text that is filled in for each pod: payload, header of the chain, and line of each event.
3. Only the chain is computed for each event.

The test of this module holds the lines equal to those of `History`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any

import msgspec

from shared.eventlog.chain import header_of
from shared.eventlog.history_file import line_of
from shared.events import streams
from shared.events.envelope import Envelope
from tests.bench._history import BEGIN_US, EVENTS_A_POD, ZONES, History

_SEPARATOR = b"\0"
_CHAIN = b"\xaa" * 32
_NUMBER = re.compile(rb"\d+|~+")
_HEX = 64
# Placeholders that occur nowhere else in an event.
_ZONE, _VERSION, _POSITION = 7_777_001, 555_000_001, 1 << 40


class _Placeholders(History):
    """A history whose node and zone are placeholders. A node's digits are tildes."""

    digits = 1

    def _where(self, number: int) -> tuple[str, int]:
        return "n" + "~" * self.digits, _ZONE


class Lines:
    """The lines of the pods from `first` on. Their numbers, and those of the pods that end, have
    five digits at least, as no other number of an event has."""

    def __init__(self, nodes: int, pods_per_s: float) -> None:
        self._nodes, self._pods_per_s = nodes, pods_per_s
        self._history = History(nodes, pods_per_s)
        self.first = self._history.live + 10_000
        self._texts: dict[tuple[int, ...], tuple[bytes, Any]] = {}

    def of_pods(
        self, first: int, last: int, chain: bytes, skipped: int = 0
    ) -> Iterator[list[bytes]]:
        """Yield the lines of each of these pods, after the event with this chain. So many events of
        the first pod are skipped."""
        live, nodes, pod_us = self._history.live, self._nodes, int(1_000_000 / self._pods_per_s)
        position = self._history.events(first)
        for number in range(first, last):
            node = number % nodes
            widths = len(str(number)), len(str(number - live)), len(str(node))
            text, chosen = self._texts.get(widths) or self._text(number, *widths)
            turn = number // nodes
            values = (
                *range(position, position + EVENTS_A_POD + 1),
                *(number, number - live, number + 2, node, turn % ZONES, turn + 1, turn + 2),
                BEGIN_US + number * pod_us,
            )
            parts = iter((text % chosen(values)).split(_SEPARATOR)[4 * skipped :])
            lines, position, skipped = list[bytes](), position + EVENTS_A_POD, 0
            for payload, header, head, tail in zip(parts, parts, parts, parts, strict=True):
                chain = sha256(chain + sha256(payload).digest() + header).digest()
                lines.append(head + chain.hex().encode() + tail)
            yield lines

    def _text(self, number: int, *widths: int) -> tuple[bytes, Any]:
        """Return the text of pods whose numbers have as many digits as this one's, and a function
        that chooses its values."""
        written = _Placeholders(self._nodes, self._pods_per_s)
        written.digits, live = widths[2], written.live
        written.begin_at(number, b"")
        written.position = _POSITION
        name, _ = written._where(number)
        written._versions |= dict.fromkeys((streams.node(name), streams.report(name)), _VERSION)
        rows = written.of_pod(number)
        # In the order of `values` in `of_pods`.
        placeholders = {str(_POSITION + index).encode(): index for index in range(9)} | {
            text.encode(): index
            for index, text in enumerate(
                (
                    *map(str, (number, number - live, number + 2)),
                    *("~" * widths[2], str(_ZONE), str(_VERSION), str(_VERSION + 1)),
                    str(rows[0].time_us),
                ),
                EVENTS_A_POD + 1,
            )
        }
        chosen: list[int] = []

        def placed(match: re.Match[bytes]) -> bytes:
            if match[0] not in placeholders:
                return match[0]
            chosen.append(placeholders[match[0]])
            return b"%d"

        text = _SEPARATOR.join(_NUMBER.sub(placed, part) for row in rows for part in _parts(row))
        self._texts[widths] = text, itemgetter(*chosen)
        return self._texts[widths]


def _parts(row: Envelope) -> Sequence[bytes]:
    """Return payload, header, and the line before and after the chain."""
    line = line_of(msgspec.structs.replace(row, chain=_CHAIN))
    head, _, tail = line.partition(_CHAIN.hex().encode())
    return row.payload, header_of(row), head, tail


def chain_in(line: bytes) -> bytes:
    """Return the chain of the event of this line."""
    start = line.rindex(b'"chain":"') + len(b'"chain":"')
    return bytes.fromhex(line[start : start + _HEX].decode())
