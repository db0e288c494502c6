"""A deterministic simulation: the services' cores and loops on one log and one cluster, under
faults chosen by a seed.

No clock, no randomness but the seed, no event loop: `fibers` drives the loops by hand. Start
reading at `world`.
"""
