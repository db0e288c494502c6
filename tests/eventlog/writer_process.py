"""A process that appends until it is killed: commits of two events on two streams. It prints the
last position of each outcome.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

from shared.eventlog.port import Appended
from shared.eventlog.postgres import PostgresEventLog
from tests.eventlog.words import commit, draft


async def main(url: str, name: str) -> None:
    log = await PostgresEventLog.open(url)
    for number in itertools.count():
        batch = [
            commit(f"{name}.{number}.{i}", draft(f"{name}/a"), draft(f"{name}/b"))
            for i in range(20)
        ]
        outcomes = await log.append(batch)
        print(
            max(outcome.last for outcome in outcomes if isinstance(outcome, Appended)), flush=True
        )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
