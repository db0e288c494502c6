"""The in-memory twin keeps the contract."""

from __future__ import annotations

import pytest

from shared.eventlog.memory import MemoryEventLog
from tests.eventlog.contract import EventLogContract


class TestMemory(EventLogContract):
    @pytest.fixture
    def log(self) -> MemoryEventLog:
        return MemoryEventLog()
