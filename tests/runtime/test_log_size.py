"""The log's size is measured, and a warning comes before its limit, once each time that it comes
near.
"""

from __future__ import annotations

import pytest

from shared.eventlog.errors import LogUnavailable
from shared.runtime.log_size import watch_size
from shared.telemetry import logs, names
from tests.runtime.helpers import FaultyLog


class Enough(Exception):
    """All sizes were returned."""


class Growing(FaultyLog):
    """A log that returns one size after the other, and is unavailable for a size of None."""

    def __init__(self, *sizes: int | None) -> None:
        super().__init__()
        self._sizes = list(sizes)

    async def size_bytes(self) -> int:
        if not self._sizes:
            raise Enough
        size = self._sizes.pop(0)
        if size is None:
            raise LogUnavailable("away")
        return size


class Hurried:
    """A clock whose pauses take no time."""

    def now_us(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return 0.0

    async def sleep(self, delay_s: float) -> None:
        pass


async def warnings(capsys: pytest.CaptureFixture[str], *sizes: int | None) -> int:
    logs.configure("scheduler", "json")
    with pytest.raises(Enough):
        await watch_size(Growing(*sizes), 100, Hurried())
    return capsys.readouterr().err.count(names.LOG_NEAR_LIMIT)


async def test_a_log_near_its_limit_is_reported_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await warnings(capsys, 10, 80, 81, 90, 200) == 1


async def test_a_log_within_its_limit_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert await warnings(capsys, 0, 80) == 0


async def test_it_is_reported_again_after_it_shrank_and_an_outage_changes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await warnings(capsys, 90, None, 90, 40, 90) == 2
