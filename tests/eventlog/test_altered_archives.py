"""Blocks of the archive that were altered: verify reports the position, other readers say so in one
sentence.
"""

from __future__ import annotations

import asyncio
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from services.cli.main import main
from services.replay.commands import verify
from services.upkeep.exporting import export
from shared.eventlog.errors import LogBroken
from shared.eventlog.file_log import FileLog
from shared.eventlog.history_file import pack, unpack
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.eventlog.whole_stream import envelopes_of
from tests.eventlog.test_history_files import FACTS, a_log
from tests.eventlog.test_life import PARTITION, archived, log, relayed  # noqa: F401 - fixture

SET = "UPDATE archived_block SET data = $1, sha256 = $2 WHERE first = $3"


async def alter(url: str, how: str) -> None:
    """Alter the second of three blocks."""
    owner, first = await connect(url), PARTITION + 1
    data = await owner.fetchval("SELECT data FROM archived_block WHERE first = $1", first)
    digest = sha256(data).digest()
    if how == "gone":
        await owner.execute("DELETE FROM archived_block WHERE first = $1", first)
    elif how == "flipped":
        await owner.execute(SET, data[:40] + bytes([data[40] ^ 1]) + data[41:], digest, first)
    else:
        remaining: Any = {"no gzip": b"text", "empty": pack([]), "cut": pack(unpack(data)[:-1])}[
            how
        ]
        await owner.execute(SET, remaining, sha256(remaining).digest(), first)
    await owner.close()


@pytest.mark.parametrize("how", ["gone", "flipped", "no gzip", "empty", "cut"])
async def test_an_altered_block_is_a_verdict_of_verify(
    log: PostgresEventLog, log_url: str, how: str
) -> None:
    await relayed(log)
    assert await archived(log_url, log) >= 3 * PARTITION
    await alter(log_url, how)
    fresh = await PostgresEventLog.open(log_url)
    verdict = await verify(fresh, [])
    (violation,) = verdict.violations
    assert (violation.invariant, violation.position) == (
        "S1" if how == "gone" else "history",
        PARTITION + 1,
    )
    with pytest.raises(LogBroken, match="restore it from a backup"):
        _ = [envelope async for envelope in envelopes_of(fresh, "report/n1")]
    await fresh.close()


async def test_other_verbs_say_it_in_one_sentence(
    log: PostgresEventLog,  # noqa: F811, RUF100
    log_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    never = tmp_path / "never"
    await relayed(log)
    await archived(log_url, log)
    await alter(log_url, "flipped")
    for arguments in (
        ("replay", "log"),
        ("replay", "at", "head"),
        ("replay", "whatif"),
        ("log", "export", "--out", str(never)),
    ):
        monkeypatch.setattr(sys, "argv", ["topolog", *arguments, "--database-url", log_url])
        code, said = await _in_a_thread(capsys)
        assert (code, "was altered" in said, "  try: restore it from a backup" in said) == (
            1,
            True,
            True,
        ), said
        assert not Path(str(never)).exists()


async def _in_a_thread(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    def run() -> int:
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    code = await asyncio.to_thread(run)
    return code, capsys.readouterr().err


async def test_a_file_that_is_altered_while_it_is_read_is_a_verdict_too(tmp_path: Path) -> None:
    file = tmp_path / "x.topolog.gz"
    await export(await a_log(), file, 1, FACTS)
    result = FileLog.open(file)
    file.write_bytes(b"\0" * file.stat().st_size)
    (violation,) = (await verify(result, [])).violations
    assert (violation.invariant, violation.position) == ("history", 1)
