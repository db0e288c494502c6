"""A writer of checkpoints that is killed leaves whole checkpoints, or none."""

from __future__ import annotations

import asyncio
import sys

from shared.eventlog.checkpoints import Form, nearest_checkpoint
from shared.eventlog.postgres import PostgresEventLog
from tests.eventlog.conftest import log_url, postgres_log  # noqa: F401 - fixtures
from tests.eventlog.words import given

WRITER = """
import asyncio, sys
from shared.eventlog.checkpoints import Checkpoint, Form, save_checkpoint
from shared.eventlog.port import Place
from shared.eventlog.postgres import PostgresEventLog

async def main():
    log = await PostgresEventLog.open(sys.argv[1])
    print("ready", flush=True)
    while True:
        for event in await log.read(0, 100):
            place = Place(event.position, event.chain)
            state = b"%d " % event.position * 500_000
            await save_checkpoint(log, "p", Form(), Checkpoint(place, "one", state))

asyncio.run(main())
"""


async def test_a_killed_writer_leaves_whole_checkpoints(
    postgres_log: PostgresEventLog,  # noqa: F811, RUF100
    log_url: str,  # noqa: F811, RUF100
) -> None:
    await given(postgres_log, *"abcdef")
    for seconds in (0.05, 0.21, 0.4):
        command = (sys.executable, "-c", WRITER, log_url)
        writer = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert writer.stdout is not None
        assert await writer.stdout.readline() == b"ready\n"
        await asyncio.sleep(seconds)
        writer.kill()
        await writer.wait()
        checkpoint = await nearest_checkpoint(postgres_log, "p", Form())
        if checkpoint is not None:
            assert checkpoint.state == b"%d " % checkpoint.place.position * 500_000
    assert checkpoint is not None
