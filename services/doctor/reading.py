"""Judge the streams of the log that this release cannot read or fold, and therefore quarantines.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from services.doctor.finding import Finding, problem

ABOUT = "log"
# More streams than this are counted, not listed.
SHOWN = 10


def judge(quarantined: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a problem for each quarantined stream. The part of its reason after the last `; ` is
    the remedy."""
    for stream in sorted(quarantined)[:SHOWN]:
        reason, _, remedy = quarantined[stream].rpartition("; ")
        yield problem(
            ABOUT,
            f"stream {stream} is quarantined by this release: {reason}",
            f"{remedy}; or topolog log skip POSITION --reason TEXT",
        )
    if len(quarantined) > SHOWN:
        yield problem(
            ABOUT,
            f"{len(quarantined) - SHOWN} more streams are quarantined by this release",
            "as for the streams above",
        )
