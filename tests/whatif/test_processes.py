"""Processes that play a side or a row get no address and no token, although they inherit the
environment of the command.
"""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from services.comparison import side_by_side
from services.whatif import comparing
from shared.runtime.secret_file import SECRETS

NOTE = "NOTE_OF_TEST_PROCESSES"


def tell_environment(_asked: Any, _told: Connection) -> None:
    """Write the environment to a file and end without a result, in place of playing. The file is
    written atomically, because the other side's process is killed as soon as one has ended.
    """
    note = Path(os.environ[NOTE])
    draft = note.with_suffix(f".{os.getpid()}")
    draft.write_text("\n".join(f"{name}={value}" for name, value in os.environ.items()))
    draft.rename(note)


class Named:
    name = "a side"


def test_a_process_that_plays_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("TOPOLOG_CACHE", "ledger")
    monkeypatch.setenv(NOTE, str(tmp_path / "note"))
    monkeypatch.setattr(side_by_side, "_play_one", tell_environment)
    monkeypatch.setattr(comparing, "_play_one", tell_environment)
    with pytest.raises(side_by_side.RowFailed):
        side_by_side.play([side_by_side.cell("ledger, proof", 2, "change")], lambda _: None, 1)
    seen = [(tmp_path / "note").read_text()]
    with pytest.raises(comparing.SideFailed):
        comparing._played([Named(), Named()], lambda _: None, 2)  # type: ignore[list-item]
    seen.append((tmp_path / "note").read_text())
    for environment in seen:
        assert "s3cret" not in environment
        assert "TOPOLOG_CACHE=ledger" in environment
    assert {os.environ[name] for name in SECRETS} == {"s3cret"}
