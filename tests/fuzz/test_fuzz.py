"""A short run through every door, and the watch itself: a door that breaks, hangs or grows is found
with its input.
"""

from __future__ import annotations

import pytest

from tests.fuzz import runner
from tests.fuzz.__main__ import main
from tests.fuzz.door import Door
from tests.fuzz.doors import DOORS


@pytest.mark.parametrize("name", sorted(DOORS))
def test_a_door_bears_whatever_comes(name: str) -> None:
    finding = runner.run(DOORS[name], 60, 1)
    assert finding is None, f"{finding.problem}\n{finding.data!r}" if finding else ""


def _bad(data: bytes) -> None:
    if data == b"7":
        raise KeyError(data)


def test_an_undeclared_exception_is_a_finding_with_its_input() -> None:
    door = Door("bad", "", lambda rng: str(rng.randrange(10)).encode(), _bad)
    finding = runner.run(door, 1000, 3)
    assert finding is not None
    assert finding.data == b"7"
    assert "KeyError" in finding.problem
    again = runner.run(door, 1000, 3)
    assert again is not None
    assert again.number == finding.number, "the same seed makes the same inputs"


def test_a_declared_exception_is_none() -> None:
    door = Door("declared", "", lambda _rng: b"7", _bad, (KeyError,))
    assert runner.run(door, 10, 3) is None


def test_endless_work_is_a_finding_even_where_everything_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def endless(_data: bytes) -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    monkeypatch.setattr(runner, "HANG_S", 0.05)
    finding = runner.run(Door("endless", "", lambda _rng: b"x", endless), 3, 0)
    assert finding is not None
    assert "no answer" in finding.problem


def test_memory_that_grows_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    monkeypatch.setattr(runner, "GROWTH_MB", 30)
    door = Door(
        "grows",
        "",
        lambda _rng: b"x",
        lambda _data: kept.append(bytes(bytearray(2 << 20).replace(b"\0", b"x"))),
    )
    finding = runner.run(door, 100, 0)
    assert finding is not None
    assert "memory grew" in finding.problem


def test_the_command_ends_with_1_and_shows_how_to_repeat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        DOORS, "bad", Door("bad", "", lambda rng: str(rng.randrange(10)).encode(), _bad)
    )
    assert main(["bad", "--inputs", "1000", "--seed", "3"]) == 1
    assert "again: python -m tests.fuzz bad --file" in capsys.readouterr().out
    assert main(["quantity", "--inputs", "50", "--seed", "3"]) == 0
