"""Exponential backoff with jitter."""

from __future__ import annotations

import random


def jittered_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return the pause after some failures: doubled each time up to `longest_s`, with jitter."""
    longest = min(first_s * (1 << min(failures, 16)), longest_s)
    return longest * random.uniform(0.5, 1.0)
