"""The same pods on the same machines, scheduled in eight ways, in virtual time: who is rejected,
who waits, what is withheld.

Behind `topolog compare` and `python -m tests.bench quality`, which writes docs/quality.md.
"""
