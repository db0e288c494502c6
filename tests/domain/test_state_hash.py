"""The hash of a state is that of its canonical form, though it is computed in parts."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.state_hash import canonical, canonical_parts, state_hash


class Inner(msgspec.Struct, omit_defaults=True):
    z: int = 0
    a: dict[int, str] = {}


class State(msgspec.Struct, rename={"b": "é"}):
    """Fields that are not in order, one with another name in JSON."""

    b: dict[str, Any] = {}
    a: dict[Any, Any] = {}
    c: Any = None


class Tagged(msgspec.Struct, tag="t"):
    b: int = 0


VALUES = st.recursive(
    st.none() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=5),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.text(max_size=3), values, max_size=3)
        | st.builds(Inner, st.integers(), st.dictionaries(st.integers(), st.text(), max_size=3))
    ),
    max_leaves=8,
)


@given(
    st.builds(
        State,
        st.dictionaries(st.text(max_size=4), VALUES, max_size=5),
        st.dictionaries(st.text(max_size=4) | st.integers(0, 99), VALUES, max_size=5),
        VALUES,
    )
)
def test_the_parts_are_the_canonical_form(state: State) -> None:
    assert b"".join(canonical_parts(state)) == canonical(state)
    assert state_hash(state) == sha256(canonical(state)).hexdigest()[:16]


def test_other_values_have_one_part() -> None:
    for value in (Tagged(), Inner(), {"b": 1, "a": 2}, [1], None):
        assert list(canonical_parts(value)) == [canonical(value)]


def test_a_large_dict_is_encoded_by_entry() -> None:
    assert len(list(canonical_parts(State(b={str(n): n for n in range(50)})))) > 50
