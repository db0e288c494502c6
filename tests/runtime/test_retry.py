"""Pauses grow up to a limit and differ between processes that failed together."""

from __future__ import annotations

from shared.runtime.retry import jittered_s


def test_pauses_grow_to_a_limit_and_scatter() -> None:
    for failures, most in ((0, 0.5), (1, 1.0), (3, 4.0), (4, 5.0), (99, 5.0)):
        pauses = {jittered_s(failures, 0.5, 5.0) for _ in range(50)}
        assert len(pauses) > 10
        assert most / 2 <= min(pauses) <= max(pauses) <= most
