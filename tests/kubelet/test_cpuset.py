"""Linux lists of CPUs, both ways, and the message for a wrong one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kubelet.cpuset import cpus_of, each_cpu, format_cpus, parse_cpus


@given(st.sets(st.integers(0, 300)))
def test_format_and_parse_are_inverse(ids: set[int]) -> None:
    cpus = cpus_of(ids)
    assert parse_cpus(format_cpus(cpus)) == cpus
    assert list(each_cpu(cpus)) == sorted(ids)


@pytest.mark.parametrize(
    ("ids", "text"),
    [((), ""), ((3,), "3"), ((0, 1), "0-1"), ((0, 1, 2, 6), "0-2,6"), ((0, 2, 4), "0,2,4")],
)
def test_runs_are_joined_as_the_kubelet_prints_them(ids: tuple[int, ...], text: str) -> None:
    assert format_cpus(cpus_of(ids)) == text


@pytest.mark.parametrize(
    "text", ["x", "3-1", "0,,1", "-1", "1-", "0-999999999", "9000", "1 2", "٣"]
)
def test_a_wrong_list_is_refused_by_the_part_that_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match="CPU id"):
        parse_cpus(text)
