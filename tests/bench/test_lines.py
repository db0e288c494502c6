"""The lines that the bench writes quickly are those of the history's events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.eventlog.chain import linked
from shared.eventlog.history_file import envelope_of, line_of
from tests.bench._history import BLOCK, History
from tests.bench._lines import Lines, chain_in

PODS = 3


@settings(max_examples=40, deadline=None)
@given(
    nodes=st.integers(1, 1200),
    pods_per_s=st.sampled_from([0.4, 10.0, 7.0]),
    after=st.one_of(st.integers(0, 50), st.integers(0, 2_000_000), st.integers(89_990, 90_000)),
)
def test_lines_are_those_of_the_history(nodes: int, pods_per_s: float, after: int) -> None:
    lines, history = Lines(nodes, pods_per_s), History(nodes, pods_per_s)
    first, chain = lines.first + after, bytes(range(32))
    history.begin_at(first, chain)
    rows = [row for number in range(first, first + PODS) for row in history.of_pod(number)]
    written = [line for pod in lines.of_pods(first, first + PODS, chain) for line in pod]
    assert written == [line_of(row) for row in rows]
    assert [chain_in(line) for line in written] == [row.chain for row in rows]


def test_a_history_goes_on_at_any_pod() -> None:
    whole = [row for block in History(3, 1.0).blocks(100) for row in block]
    history = History(3, 1.0)
    for first in (1, 20, 36, 37, 80):
        previous = history.events(first)
        later = History(3, 1.0)
        later.begin_at(first, whole[previous - 1].chain)
        assert [row for block in later.blocks(100, first) for row in block] == whole[previous:]
    assert [history.number_at(row.position) for row in whole if row.type == "PodObserved"] == [
        *range(100)
    ]
    assert len(whole) == history.events(100) < BLOCK
    chain = b""
    for row in whole:
        chain = linked(chain, envelope_of(line_of(row)))
    assert chain == whole[-1].chain
