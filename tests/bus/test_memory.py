"""The in-memory twin keeps the contract."""

from __future__ import annotations

import pytest

from shared.bus.memory import MemoryBus
from tests.bus.contract import BusContract


class TestMemory(BusContract):
    @pytest.fixture
    def bus(self) -> MemoryBus:
        return MemoryBus()
