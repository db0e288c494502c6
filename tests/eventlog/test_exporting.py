"""Targets of an export: a regular file, by one writer at a time, through a link, and never over
another kind of file.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from services.upkeep.errors import UpkeepRefused
from services.upkeep.exporting import export
from shared.eventlog.file_log import FileLog
from shared.eventlog.memory import MemoryEventLog
from shared.events.envelope import Envelope
from tests.eventlog.test_history_files import FACTS, a_log


class Slow(MemoryEventLog):
    """A log that stops at its first page until it may continue."""

    def __init__(self, events: list[Envelope]) -> None:
        super().__init__("log-1")
        self._events += events
        self.there, self.go_on = asyncio.Event(), asyncio.Event()

    async def read(self, later: int, limit: int = 1000) -> list[Envelope]:
        self.there.set()
        await self.go_on.wait()
        return await super().read(later, limit)


async def test_a_second_export_into_the_same_file_is_refused_and_the_first_comes_to_its_end(
    tmp_path: Path,
) -> None:
    out, slow = tmp_path / "x.topolog.gz", Slow((await a_log())._events)
    first = asyncio.create_task(export(slow, out, 1, FACTS))
    await slow.there.wait()
    with pytest.raises(UpkeepRefused, match="another export is writing"):
        await export(await a_log(), out, 1, 3)
    slow.go_on.set()
    assert (await first).last == FACTS
    assert FileLog.open(out).last == FACTS
    assert [item.name for item in tmp_path.iterdir()] == [out.name]


async def test_what_a_killed_export_left_is_written_over(tmp_path: Path) -> None:
    out = tmp_path / "x.topolog.gz"
    (tmp_path / "x.topolog.gz.partial").write_bytes(b"x" * 100_000)
    await export(await a_log(), out, 1, FACTS)
    assert FileLog.open(out).last == FACTS
    assert [item.name for item in tmp_path.iterdir()] == [out.name]


async def test_an_interrupted_export_leaves_no_other_file(tmp_path: Path) -> None:
    out, slow = tmp_path / "x.topolog.gz", Slow((await a_log())._events)
    first = asyncio.create_task(export(slow, out, 1, FACTS))
    await slow.there.wait()
    first.cancel()
    await asyncio.wait([first])
    assert list(tmp_path.iterdir()) == []


async def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "elsewhere" / "real.topolog.gz", tmp_path / "x.topolog.gz"
    target.parent.mkdir()
    link.symlink_to(target)
    for last in (3, FACTS):
        done = await export(await a_log(), link, 1, last)
        assert link.is_symlink()
        assert (FileLog.open(target).last, done.file) == (last, str(link))
    assert [item.name for item in target.parent.iterdir()] == [target.name]


async def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "x.topolog.gz"
    link.symlink_to(link)
    with pytest.raises(UpkeepRefused, match="cannot be written"):
        await export(await a_log(), link, 1, FACTS)


async def test_the_files_permissions_stay(tmp_path: Path) -> None:
    out = tmp_path / "x.topolog.gz"
    out.touch(mode=0o600)
    await export(await a_log(), out, 1, FACTS)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def identity(path: Path) -> tuple[int, ...]:
    """Return the file's identity and its modification time; reading changes only its access
    time.
    """
    seen = path.lstat()
    return seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


async def test_a_path_that_is_no_regular_file_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, folder, listening = tmp_path / "pipe", tmp_path / "folder", socket.socket(socket.AF_UNIX)
    os.mkfifo(pipe)
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    listening.bind("socket")
    ends = os.openpty()  # A device that no process can replace, even if this test fails.
    terminal = Path(os.ttyname(ends[1]))
    (tmp_path / "link").symlink_to(terminal)
    for name, said in (
        ("pipe", "a pipe"),
        ("folder", "a folder"),
        ("socket", "a socket"),
        ("link", "a device"),
    ):
        earlier = identity(tmp_path / name)
        with pytest.raises(UpkeepRefused, match=said):
            await export(await a_log(), tmp_path / name, 1, FACTS)
        assert identity(tmp_path / name) == earlier
    with pytest.raises(UpkeepRefused, match=f"{terminal} is a device"):
        await export(await a_log(), terminal, 1, FACTS)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["folder", "link", "pipe", "socket"]
    listening.close()
    for end in ends:
        os.close(end)


async def test_an_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (
        tmp_path / "file" / "x.topolog.gz",
        tmp_path / ("x" * 300),
        Path("/proc/none/x.topolog.gz"),
    ):
        with pytest.raises(UpkeepRefused, match="cannot be written"):
            await export(await a_log(), out, 1, FACTS)
