"""Postgres keeps the contract."""

from __future__ import annotations

import pytest

from shared.eventlog.postgres import PostgresEventLog
from tests.eventlog.contract import EventLogContract


class TestPostgres(EventLogContract):
    @pytest.fixture
    def log(self, postgres_log: PostgresEventLog) -> PostgresEventLog:
        return postgres_log
