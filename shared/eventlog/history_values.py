"""What no log ever wrote, in a file that says it is a history: values that a reader or a database
would stumble over. Pure.

Files come from anywhere. What a log takes when facts are appended (`limits`), and what its columns
hold, bounds what is read.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.eventlog.chain import is_hash
from shared.eventlog.limits import MAX_FACT_BYTES, MAX_NAME
from shared.events.envelope import Envelope

MOST = 1 << 62
"""Of positions, versions and epochs: what comes after still has room in 63 bits."""
MOST_US = 253_402_300_799_999_999
"""The end of the year 9999."""
MOST_SMALL = (1 << 31) - 2
MOST_PAYLOAD = 2 * MAX_FACT_BYTES
"""A redacted fact may be larger than it was when it was appended."""
HASH_BYTES = (0, 32)


def event_problem(event: Envelope) -> str:
    """What is wrong with the values of a row; "" for nothing."""
    numbers = (
        ("version", event.version, 1, MOST), ("schema", event.schema, 1, MOST_SMALL), ("time_us", event.time_us, 0, MOST_US),
        ("epoch", event.epoch, 0, MOST), ("causation", event.causation, 0, MOST),
    )  # fmt: skip
    for name, value, least, most in numbers:
        if not least <= value <= most:
            return f"its {name} is {shown(value)}, and {least} to {most} are possible"
    for name, text in (
        ("stream", event.stream),
        ("commit_id", event.commit_id),
        ("type", event.type),
    ):
        if not 0 < len(text) <= MAX_NAME:
            return f"its {name} has {len(text)} characters, and 1 to {MAX_NAME} are possible"
    for name, text in (
        ("stream", event.stream), ("commit_id", event.commit_id), ("type", event.type), ("role", event.role),
        ("correlation", event.correlation), ("trace", event.trace),
    ):  # fmt: skip
        if "\x00" in text:
            return f"its {name} holds the character 0"
    if not event.role:
        return "it names no role"
    if len(event.payload) > MOST_PAYLOAD:
        return f"its payload has {len(event.payload)} bytes, and {MOST_PAYLOAD} are the most"
    return "" if len(event.chain) in HASH_BYTES else "its chain is no SHA-256"


def header_problem(
    log_id: str,
    timeline: int,
    first: int,
    last: int,
    before: str,
    redacted: Mapping[int, str],
    checkpoints: Mapping[str, int],
) -> str:
    """What is wrong with the values of a header; "" for nothing."""
    if not 0 < len(log_id) <= MAX_NAME or "\x00" in log_id:
        return "its header names no log"
    if not 1 <= timeline <= MOST_SMALL:
        return f"its header names timeline {shown(timeline)}"
    if not 1 <= first <= last + 1 <= MOST:
        return f"its header says that it holds {shown(first)} to {shown(last)}"
    if before and not is_hash(before):
        return "its header names no hash for what comes before it"
    for position, digest in redacted.items():
        if not is_hash(digest):
            return f"its header names no hash for position {shown(position)}"
    for name, position in checkpoints.items():
        if not 0 < len(name) <= MAX_NAME or "\x00" in name or not 0 <= position <= last:
            return f"its header names a consumer at position {shown(position)}"
    return ""


def shown(value: int) -> str:
    """A number as an error may repeat it."""
    return str(value) if abs(value) < 1 << 70 else "a number of very many digits"
