"""kube-scheduler is kept waiting now and then, for a moment, and never for more than a share of its
time.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.extender.extender import MOST_S, SHARE, Patience


def test_the_first_pod_waits_longest_and_later_pods_keep_waiting() -> None:
    patience = Patience()
    assert [patience.take(10.0) for _ in range(3)] == [MOST_S / 2, MOST_S / 4, MOST_S / 8]


def test_it_comes_back_with_time_and_with_what_was_not_used() -> None:
    patience = Patience()
    patience.give_back(patience.take(10.0) - 0.05)
    assert patience.take(10.0) == (MOST_S - 0.05) / 2
    assert patience.take(1000.0) == MOST_S / 2
    patience.give_back(-1.0)
    assert patience.take(1000.0) == MOST_S / 4, "more than was taken costs no more"


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1)), max_size=50))
def test_all_waits_together_are_a_share_of_the_time(asked: list[tuple[float, float]]) -> None:
    """Each asks so long after the one before it was answered, and uses a part of its allowed
    wait.
    """
    patience, now_s, waited_s = Patience(), 0.0, 0.0
    for pause_s, part in asked:
        now_s += pause_s
        taken_s = patience.take(now_s)
        used_s = part * taken_s
        patience.give_back(taken_s - used_s)
        now_s, waited_s = now_s + used_s, waited_s + used_s
        assert waited_s <= MOST_S + SHARE * now_s + 1e-9
