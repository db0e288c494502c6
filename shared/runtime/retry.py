"""How long to pause before the next try: twice as long each time, up to a limit, and never all at
once.
"""

from __future__ import annotations

import random


def jittered_s(failures: int, first_s: float, longest_s: float) -> float:
    """The pause after so many failures before: twice as long each time, and apart for those who
    failed together.
    """
    longest = min(first_s * (1 << min(failures, 16)), longest_s)
    return longest * random.uniform(0.5, 1.0)
