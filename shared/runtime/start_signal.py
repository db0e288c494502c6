"""The signal that the servers of a service are ready: the end of its standard input.

`topolog up` starts services at once, so that they load their code while Postgres starts. Must not
know what the servers are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

# A supervisor that will end the standard input sets this variable. Otherwise the standard input may
# be a terminal, which does not end.
VARIABLE = "TOPOLOG_STARTS_AT_END_OF_INPUT"
_INPUT = 0
_CHUNK_BYTES = 4096


def is_awaited(environment: Mapping[str, str]) -> bool:
    """Return whether a supervisor will give the signal."""
    return bool(environment.get(VARIABLE))


async def wait_for(environment: Mapping[str, str], file: int = _INPUT) -> None:
    """Return when `file` ends, or at once without the variable."""
    if not is_awaited(environment):
        return
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def readable() -> None:
        if not os.read(file, _CHUNK_BYTES) and not ended.done():
            ended.set_result(None)

    loop.add_reader(file, readable)
    try:
        await ended
    finally:
        loop.remove_reader(file)
