"""`python -m tests.bench quality`: how well pods are placed, in virtual time, by eight ways of
scheduling them.
"""

from tests.bench.quality.command import main

__all__ = ["main"]
