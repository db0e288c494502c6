"""What an exporter believes of an agent: only what a living one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.agent.statement import StatementFile
from services.exporter.statement import NOBODY, StatementReader
from shared.domain.report import Placement, ZonedAmount
from shared.domain.statement import STATEMENT_FILE, TOPOLOG, Statement

OWN = (Placement("default", "own", "main", (ZonedAmount("cpu", (0,), 2000, "2-3"),), "uid"),)


def test_only_a_living_agent_is_believed(tmp_path: Path) -> None:
    reader, agent = StatementReader(str(tmp_path)), StatementFile(str(tmp_path))
    assert reader.read() == NOBODY
    assert agent.lock()
    assert reader.read() == NOBODY
    agent.write(())
    assert reader.read() == Statement(TOPOLOG)
    agent.write(OWN)
    assert reader.read() == Statement(TOPOLOG, OWN)
    assert reader.read() is reader.read(), "an unchanged statement makes no new report"
    agent.withdraw()
    assert reader.read() == NOBODY
    agent.write(OWN)
    left_behind = (tmp_path / STATEMENT_FILE).read_bytes()
    agent.close()
    (tmp_path / STATEMENT_FILE).write_bytes(left_behind)
    assert reader.read() == NOBODY


def test_without_a_folder_nothing_is_known() -> None:
    assert StatementReader("").read() is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"containers":7}'])
def test_an_unreadable_statement_enforces_nothing(tmp_path: Path, content: bytes) -> None:
    agent = StatementFile(str(tmp_path))
    assert agent.lock()
    (tmp_path / STATEMENT_FILE).write_bytes(content)
    assert StatementReader(str(tmp_path)).read() == NOBODY
    agent.close()


def test_one_agent_has_the_lock_and_a_reader_does_not_take_it(tmp_path: Path) -> None:
    first, second = StatementFile(str(tmp_path)), StatementFile(str(tmp_path))
    reader = StatementReader(str(tmp_path))
    assert first.lock()
    assert not second.lock()
    assert first.lock()
    first.close()
    assert reader.read() == NOBODY
    assert second.lock()
    second.close()
