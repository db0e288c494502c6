"""What the kubelet gives nobody, in the words of its own flags: CRI does not tell it.

Pure. `reservedSystemCPUs` is a Linux list; `reservedMemory` is
`ZONE:RESOURCE=QUANTITY[,RESOURCE=QUANTITY]`, one text a zone.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.exporter.sysfs import parse_ids
from shared.domain import quantity


class Reserve(msgspec.Struct, frozen=True):
    """CPUs, and bytes by (zone, resource). `cpus` None: no CPU is given away by id; `memory` empty:
    no block is.
    """

    cpus: frozenset[int] | None = None
    memory: dict[tuple[int, str], int] = {}


def parse(cpus: str, memory: Iterable[str]) -> Reserve:
    """Raises ValueError with the flag, what it holds and what was expected."""
    found: dict[tuple[int, str], int] = {}
    for text in memory:
        zone, colon, rest = text.partition(":")
        pairs = [pair.partition("=") for pair in rest.split(",")]
        if not (
            zone.isascii()
            and zone.isdigit()
            and len(zone) < 6
            and colon
            and all(name and amount for name, _, amount in pairs)
        ):
            raise ValueError(
                f"--reserved-memory {text[:80]!r}: expected ZONE:RESOURCE=QUANTITY, for example 0:memory=1Gi"
            )
        for name, _, amount in pairs:
            try:
                found[int(zone), name] = quantity.amount(name, amount)
            except ValueError as error:
                raise ValueError(f"--reserved-memory {text[:80]!r}: {error}") from None
    return Reserve(frozenset(parse_ids(cpus, "--reserved-cpus")) if cpus else None, found)
