"""The deciding part of the scheduler: demand, filter, hints, merge, score, reserve. Pure: no I/O, clock or asyncio."""
