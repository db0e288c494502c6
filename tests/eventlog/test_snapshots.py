"""A snapshot is used only when it is exactly what was sealed, by the same code."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.eventlog.snapshots import seal, unseal


@given(st.binary(max_size=200))
def test_a_sealed_state_is_given_back(state: bytes) -> None:
    assert unseal(seal(state)) == state


@given(st.binary(min_size=1, max_size=50), st.data())
def test_any_changed_or_missing_byte_makes_it_unusable(state: bytes, data: st.DataObject) -> None:
    sealed = bytearray(seal(state))
    index = data.draw(st.integers(0, len(sealed) - 1))
    sealed[index] ^= data.draw(st.integers(1, 255))
    assert unseal(bytes(sealed)) is None
    assert unseal(seal(state)[:index]) is None
