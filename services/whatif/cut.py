"""The effect of a window on the counts: pods that were there before it, and pods that its end cuts
off. Values in, sentences out.

This module does not know rules or kubelets.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.whatif.playing import Side
from services.whatif.recorded import Recorded
from services.whatif.world import World


def notes(recorded: Recorded, played: World, sides: Sequence[Side]) -> list[str]:
    """Return the notes for all sides: the recorded one and the simulated ones."""
    running = len(played.load.running)
    early = sum(
        recorded.pods[arrival.task.name].seen_us < recorded.begin_us
        for arrival in played.load.arrivals
    )
    lines = (
        [
            (
                f"{running} pods ran when the window begins: they run from its beginning on, and "
                "are in no count"
            )
        ]
        if running
        else []
    )
    lines += (
        [f"{early} pods waited when the window begins: they arrive with it, and wait from there on"]
        if early
        else []
    )
    return lines + _at_the_end((recorded.end_us - recorded.begin_us) / 1e6, sides)


def _at_the_end(window_s: float, sides: Sequence[Side]) -> list[str]:
    if not any(side.unplaced for side in sides):
        return []
    underway = ", ".join(f"{side.underway} of {side.unplaced} ({side.name})" for side in sides)
    lines = [
        "unplaced are pods that do not run yet when the window ends, after "
        f"{window_s:.1f} s; of those have a node and "
        f"would run later: {underway}"
    ]
    if any(side.underway for side in sides):
        lines.append(
            "delays that the history does not show (of reports, of an admission's steps) are "
            "those of a real cluster. If the history ran faster than the clock, they take a "
            "larger share of it, and more pods wait at its end than when it was recorded"
        )
    return lines
