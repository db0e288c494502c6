"""Garbage collections stay short, however large the state is."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from shared.runtime import lean


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def test_what_survives_a_long_collection_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lean, "LONG_S", 0.0)
    lean.loaded()
    most = 0

    def count(phase: str, _info: dict[str, int]) -> None:
        nonlocal most
        if phase == "start":
            most = max(most, sum(len(gc.get_objects(number)) for number in range(3)))

    gc.callbacks.insert(0, count)
    state = [{0: [number]} for number in range(300_000)]
    assert most < 20 * lean.COLLECT_AFTER < len(state)


def test_short_collections_go_on_finding_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "LONG_S", 60.0)
    lean.loaded()
    frozen = gc.get_freeze_count()
    ring: list[object] = []
    ring.append(ring)
    del ring
    assert gc.collect() >= 1
    assert gc.get_freeze_count() <= frozen
