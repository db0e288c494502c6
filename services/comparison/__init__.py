"""The same pods on the same machines, scheduled in eight ways, in virtual time: rejections, waits,
withheld capacity.

The code behind `topolog compare` and `python -m tests.bench quality`.
"""
