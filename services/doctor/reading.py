"""What of the log this release cannot read or fold: its replicas set those streams aside. Pure.
Must not know what facts mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from services.doctor.finding import Finding, problem

ABOUT = "log"
SHOWN = 10
"""Streams that are named one by one."""


def judge(aside: Mapping[str, str]) -> Iterator[Finding]:
    """A problem for each stream that is set aside; what is wrong with it ends with what to do."""
    for stream in sorted(aside)[:SHOWN]:
        wrong, _, mend = aside[stream].rpartition("; ")
        yield problem(
            ABOUT,
            f"stream {stream} is set aside by this release: {wrong}",
            f"{mend}; or topolog log skip POSITION --reason TEXT",
        )
    if len(aside) > SHOWN:
        yield problem(
            ABOUT,
            f"{len(aside) - SHOWN} more streams are set aside by this release",
            "as for those above",
        )
