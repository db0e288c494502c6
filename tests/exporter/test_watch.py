"""Every way in which a kubelet writes files is noticed, with and without inotify, and so is the
last change of a burst.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.exporter import watch
from services.exporter.handlers import Pace
from services.exporter.settings import ExporterSettings
from services.exporter.watch import Place, file_place, kubelet_places, watch_places
from tests.exporter.test_service import eventually


class Seen:
    """Counts changes by node, and keeps the reasons for polling."""

    def __init__(self) -> None:
        self.changes: dict[str, int] = {}
        self.reasons: list[str] = []

    def changed(self, node: str) -> None:
        self.changes[node] = self.changes.get(node, 0) + 1

    async def after(self, act: Callable[[], object], node: str = "n1") -> None:
        """Act, and wait until a further change was noticed."""
        await asyncio.sleep(0.05)
        earlier = self.changes.get(node, 0)
        act()
        await eventually(lambda: self.changes.get(node, 0) > earlier)


@asynccontextmanager
async def watching(*places: Place) -> AsyncIterator[Seen]:
    seen_pods = Seen()
    task = asyncio.create_task(
        watch_places(places, 0.01, seen_pods.changed, seen_pods.reasons.append)
    )
    await asyncio.sleep(0.05)
    try:
        yield seen_pods
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def replace(path: Path, text: str) -> None:
    """Replace a file as a kubelet does: write another one and rename it."""
    second = path.with_name(f".{path.name}123")
    second.write_text(text)
    second.replace(path)


@pytest.fixture(params=["inotify", "polling"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "polling":

        def refuse() -> None:
            raise OSError("no inotify here")

        monkeypatch.setattr(watch, "open_inotify", refuse)
    return str(request.param)


@pytest.mark.parametrize(
    "name",
    [
        "cpu_manager_state",
        "memory_manager_state",
        "device-plugins/kubelet_internal_checkpoint",
        "config.yaml",
    ],
)
async def test_a_write_to_any_file_of_a_kubelet_triggers(
    way: str, tmp_path: Path, name: str
) -> None:
    (tmp_path / "device-plugins").mkdir()
    async with watching(*kubelet_places("n1", str(tmp_path))) as seen:
        await seen.after(lambda: replace(tmp_path / name, "one"))
        await seen.after(lambda: replace(tmp_path / name, "three"))
        await seen.after(lambda: (tmp_path / name).write_text("in place"))
        await seen.after((tmp_path / name).unlink)
    assert bool(seen.reasons) == (way == "polling")


async def test_a_folder_that_comes_later_or_is_replaced_is_watched(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "REARM_S", 0.02)
    folder, file = (
        tmp_path / "device-plugins",
        tmp_path / "device-plugins" / "kubelet_internal_checkpoint",
    )
    async with watching(*kubelet_places("n1", str(tmp_path))) as seen:
        folder.mkdir()
        await seen.after(lambda: replace(file, "one"))
        file.unlink()
        folder.rmdir()
        await asyncio.sleep(0.1)
        folder.mkdir()
        await seen.after(lambda: replace(file, "two more"))


async def test_a_notify_file_is_created_touched_and_replaced(way: str, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    async with watching(file_place("n1", str(path)), file_place("n2", str(path))) as seen:
        await seen.after(path.touch)
        await seen.after(lambda: os.utime(path), "n2")
        await seen.after(lambda: replace(path, ""))
    assert seen.changes["n1"] == seen.changes["n2"]


async def test_a_busy_folder_costs_few_looks_and_its_last_change_is_seen(tmp_path: Path) -> None:
    async with watching(*kubelet_places("n1", str(tmp_path))) as seen:
        for _ in range(300):
            replace(tmp_path / "cpu_manager_state", "one")
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        assert 0 < seen.changes["n1"] < 150
        await seen.after(lambda: replace(tmp_path / "cpu_manager_state", "last"))


def test_a_scan_waits_longer_than_changes_gather() -> None:
    assert ExporterSettings(node_name="n1").settle_s > watch.GATHER_S


async def test_other_files_of_the_folder_trigger_nothing(tmp_path: Path) -> None:
    async with watching(file_place("n1", str(tmp_path / "notify"))) as seen:
        (tmp_path / "other").write_text("x")
        await asyncio.sleep(0.1)
        assert seen.changes == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 5))
def test_no_unit_of_time_has_more_scans_than_twice_the_pace(
    pauses: list[float], events: int
) -> None:
    """At most one full bucket at once, and another one while it fills again."""
    pace, now_s, scans = Pace(events, 1.0), 0.0, list[float]()
    for pause in pauses:
        now_s += pause
        now_s += pace.wait_s(now_s)
        scans.append(now_s)
    assert all(
        sum(1 for second in scans if position <= second < position + 1.0 - 1e-6) <= 2 * events
        for position in scans
    )


def test_without_a_limit_nothing_waits() -> None:
    assert [Pace(0, 1.0).wait_s(position) for position in (0.0, 0.0, 0.0)] == [0.0, 0.0, 0.0]
