"""Why an operation was refused, and what to do about it."""

from __future__ import annotations


class UpkeepRefused(Exception):
    """A command of upkeep was refused, and nothing was changed. `remedy` is the next command."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem, self.remedy = problem, remedy
