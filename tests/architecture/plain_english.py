"""How hard a text is to read, by phrases whose rates were measured in six other projects."""

from __future__ import annotations

import re

# Most uses per 10,000 words: the highest rate among the docs of h11, procrastinate, kopf,
# starlette, attrs and httpx. Higher rates made texts hard to read.
RARE = {
    r"told|tells|tell|untold": 2,
    r"nobody|somebody|anybody|everybody": 1,
    r"who|whom|whoever|whose": 10,
    r"one that|those that|those who|what is|what it|what they": 6,
    r"where": 28,
    r"beside": 1.5,
    r"anew": 0.5,
    r"stands?|stood": 8,
    r"mend|mends|mended|mending": 0.5,
}


def rate(words: str, text: str) -> float:
    """Return the uses of these words per 10,000 words of the text."""
    total = len(re.findall(r"[A-Za-z']+", text))
    uses = re.findall(rf"\b(?:{words})\b", text, re.IGNORECASE)
    return len(uses) * 10_000 / max(1, total)
