"""Device ids and CPU columns as short text: written text is read back, and hostile text is refused
within bounds.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.cpus import format_runs, parse_runs
from shared.domain.idlist import format_ids, parse_ids

IDS = st.sets(
    st.one_of(
        st.text(min_size=1, max_size=8), st.from_regex(r"[a-c]{1,2}[-:]?[0-9]{1,4}", fullmatch=True)
    ),
    max_size=12,
)


@given(IDS)
def test_device_ids_are_read_back(ids: set[str]) -> None:
    assert set(parse_ids(format_ids(ids))) == ids


@given(st.lists(st.integers(0, 20), max_size=40))
def test_columns_are_read_back(numbers: list[int]) -> None:
    assert list(parse_runs(format_runs(numbers))) == numbers


def test_ids_that_differ_in_a_number_at_their_end_share_an_item() -> None:
    ids = [f"nic-0-{number:02d}" for number in range(12)] + ["GPU-a7", "0000:3b:00.1", "a,b"]
    assert format_ids(ids) == "0000:3b:00.1,GPU-a7,a%2Cb,nic-0-0[0-9],nic-0-[10-11]"


def test_a_regular_machine_is_a_line() -> None:
    assert format_runs([0] * 64 + [1] * 64) == "0x64,1x64"
    assert format_runs([*range(64), *range(64)]) == "0-63,0-63"


@pytest.mark.parametrize(
    "text", ["a[0-999999999]", "a[3-1]", "a[", "a]", "a[1]b", "a,,b", "a[1-2-3]", "a[x]"]
)
def test_what_is_no_list_of_ids_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"ids|range|numbers"):
        parse_ids(text, limit=100)


@pytest.mark.parametrize("text", ["0x999999999", "5-1", "a", "1-", ",", "3x0"])
def test_what_is_no_column_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="run"):
        parse_runs(text)


def test_more_ids_than_allowed_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 10"):
        parse_ids("a[0-9],b[0-9]", limit=10)
