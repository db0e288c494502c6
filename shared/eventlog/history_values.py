"""Check the values of a history file that no log ever wrote and that would break a reader. Pure.

Files come from any source. The limits of an append (`limits`) and of the columns bound the values.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.eventlog.chain import is_hash
from shared.eventlog.limits import MAX_FACT_BYTES, MAX_NAME
from shared.events.envelope import Envelope

# Positions, versions and epochs; what follows still fits into 63 bits.
MOST = 1 << 62
# The end of the year 9999.
MOST_US = 253_402_300_799_999_999
MOST_SMALL = (1 << 31) - 2
# A redacted event may be larger than it was when it was appended.
MOST_PAYLOAD = 2 * MAX_FACT_BYTES
HASH_BYTES = (0, 32)


def event_problem(event: Envelope) -> str:
    """Return the first invalid value of a row, "" if there is none."""
    numbers = (
        ("version", event.version, 1, MOST),
        ("schema", event.schema, 1, MOST_SMALL),
        ("time_us", event.time_us, 0, MOST_US),
        ("epoch", event.epoch, 0, MOST),
        ("causation", event.causation, 0, MOST),
    )  # fmt: skip
    for name, value, least, most in numbers:
        if not least <= value <= most:
            return f"its {name} is {shown(value)}; the range is {least} to {most}"
    for name, text in (
        ("stream", event.stream),
        ("commit_id", event.commit_id),
        ("type", event.type),
    ):
        if not 0 < len(text) <= MAX_NAME:
            return f"its {name} has {len(text)} characters; the range is 1 to {MAX_NAME}"
    for name, text in (
        ("stream", event.stream), ("commit_id", event.commit_id), ("type", event.type),
        ("role", event.role),
        ("correlation", event.correlation), ("trace", event.trace),
    ):  # fmt: skip
        if "\x00" in text:
            return f"its {name} contains the character 0"
    if not event.role:
        return "it has no role"
    if len(event.payload) > MOST_PAYLOAD:
        return f"its payload has {len(event.payload)} bytes; the limit is {MOST_PAYLOAD}"
    return "" if len(event.chain) in HASH_BYTES else "its chain is not a SHA-256"


def header_problem(
    log_id: str,
    timeline: int,
    first: int,
    last: int,
    before: str,
    redacted: Mapping[int, str],
    checkpoints: Mapping[str, int],
) -> str:
    """Return the first invalid value of a header, "" if there is none."""
    if not 0 < len(log_id) <= MAX_NAME or "\x00" in log_id:
        return "its header has no log id"
    if not 1 <= timeline <= MOST_SMALL:
        return f"its header has timeline {shown(timeline)}"
    if not 1 <= first <= last + 1 <= MOST:
        return f"its header has the range {shown(first)} to {shown(last)}"
    if before and not is_hash(before):
        return "its header has an invalid hash before the first event"
    for position, digest in redacted.items():
        if not is_hash(digest):
            return f"its header has an invalid hash for position {shown(position)}"
    for name, position in checkpoints.items():
        if not 0 < len(name) <= MAX_NAME or "\x00" in name or not 0 <= position <= last:
            return f"its header has a consumer at position {shown(position)}"
    return ""


def shown(value: int) -> str:
    """Return a number as an error message may print it."""
    return str(value) if abs(value) < 1 << 70 else "a number of very many digits"
