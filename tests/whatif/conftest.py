"""`topolog replay whatif` on a history: the test's own `log`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.cli.main import main
from services.upkeep.exporting import export
from shared.eventlog.memory import MemoryEventLog

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def topolog(
    log: MemoryEventLog,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run `topolog replay whatif` on the exported history; return exit code, output and errors."""
    file = tmp_path / "h.topolog.gz"
    asyncio.run(_exported(log, file))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(
            sys, "argv", ["topolog", "replay", "whatif", "--history", str(file), *arguments]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


async def _exported(log: MemoryEventLog, file: Path) -> None:
    await export(log, file, 1, await log.head())
