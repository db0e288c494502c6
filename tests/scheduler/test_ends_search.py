"""The search over admissions and ends finds what a plain one finds, which tries every order that
the positions allow.

The plain one knows no shortcut: it lets ends come in every order, too. Both ask the same rules,
which have tests of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from shared.domain.demand import ContainerDemand
from shared.domain.pod import ContainerKind
from shared.domain.report import ZonedAmount
from shared.hints.admission import KubeletModel, NodeState
from shared.hints.admission_orders import Budget, OverBudgetError, PendingAdmission
from shared.hints.ends import reachable_states_after_ends
from shared.hints.observing import observe
from shared.hints.orders import NOT_YET, EndedPod, Orders
from shared.hints.provider import TakenAmounts
from shared.hints.request import HintRequest, request_of
from shared.hints.sample_states import sample_states
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import amounts, report, zone

SIZE = 6
PODS = 5
POSITIONS = st.integers(1, 9)
CPUS = st.integers(1, 5)
# Seconds of a node's clock, which may have been set back; 0 is unknown.
SECONDS = st.sampled_from((0, 0, 10, 11, 12))
# One state of the node, and how many pods of each kind may still be admitted.
Sight = tuple[NodeState, tuple[tuple[object, int], ...]]


class Scene(NamedTuple):
    model: KubeletModel
    bases: tuple[NodeState, ...]
    pods: tuple[PendingAdmission | EndedPod, ...]


class Step(NamedTuple):
    pod: int
    ends: bool
    first: int
    last: int
    clock_s: int


@st.composite
def requests(draw: st.DrawFn) -> HintRequest:
    first: list[ContainerKind] = draw(st.lists(st.sampled_from(("init", "app")), max_size=1))
    kinds: list[ContainerKind] = [*first, "app"]
    return request_of(
        tuple(
            [ContainerDemand(f"c{at}", kind, amounts(draw(CPUS))) for at, kind in enumerate(kinds)]
        )
    )


@st.composite
def on_their_way(draw: st.DrawFn) -> PendingAdmission:
    sent = draw(POSITIONS)
    runs = draw(st.sampled_from((0, sent + 1, sent + 3)))
    return PendingAdmission(draw(requests()), sent, runs, draw(SECONDS) if runs else 0)


@st.composite
def came_and_went(draw: st.DrawFn) -> EndedPod:
    sent = draw(POSITIONS)
    runs = draw(st.sampled_from((0, sent + 1, sent + 2)))
    ended, since = max(sent, runs) + draw(st.integers(1, 4)), runs > 0 and draw(st.booleans())
    return EndedPod((), draw(requests()), sent, runs, ended, since, draw(SECONDS), draw(SECONDS))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Two or three zones, with CPUs that ended pods hold."""
    holdings = draw(
        st.lists(
            st.tuples(st.integers(0, 1), st.integers(1, SIZE // 3), POSITIONS, SECONDS), max_size=3
        )
    )
    zones = draw(st.integers(2, 3))
    free = [
        SIZE - sum(cpus for at, cpus, *_ in holdings if at == number) for number in range(zones)
    ]
    policy = draw(st.sampled_from(("single-numa-node", "restricted", "best-effort")))
    shown = [zone(at, amounts(left), amounts(SIZE)) for at, left in enumerate(free)]
    seen = observe(report("n", shown, policy, tracked=("cpu",)), (), policy, "container", False)
    assert seen is not None
    listed = [
        EndedPod((ZonedAmount("cpu", (at,), cpus * 1000),), ended=ended, finished_s=finished_s)
        for at, cpus, ended, finished_s in holdings
    ]
    others = draw(
        st.lists(
            st.one_of(on_their_way(), came_and_went()), min_size=1, max_size=PODS - len(listed)
        )
    )
    return Scene(seen.model, seen.bases, (*others, *listed))


def steps(number: int, pod: PendingAdmission | EndedPod) -> Iterator[Step]:
    if isinstance(pod, PendingAdmission):
        yield Step(number, False, pod.sent_at, pod.runs_at or NOT_YET, pod.started_s)
        return
    if pod.request is not None:
        yield Step(number, False, pod.sent_at, pod.runs_at or pod.ended, pod.started_s)
    yield Step(number, True, pod.sent_at, pod.ended, pod.finished_s)


def may_be_next(step: Step, ahead: frozenset[Step]) -> bool:
    """Return whether this step may be the next by the positions. Without contrary positions, no end
    comes before an admission in an earlier second of the node's clock.
    """
    if any(step.first >= other.last for other in ahead):
        return False
    return not step.ends or not any(
        not other.ends
        and other.clock_s
        and other.clock_s < step.clock_s
        and other.first < step.last
        for other in ahead
    )


class Plain:
    """Every order, by recursion; `sights` and `may_be_rejected` are its results."""

    def __init__(self, scene: Scene) -> None:
        self.model, self.pods = scene.model, scene.pods
        self.sights: set[Sight] = set()
        self.may_be_rejected: set[object] = set()
        self._met: set[object] = set()
        everything = frozenset(
            step for number, pod in enumerate(self.pods) for step in steps(number, pod)
        )
        for states in scene.bases:
            self._from(states, everything, {})

    def _from(
        self, states: NodeState, ahead: frozenset[Step], taken: dict[int, Sequence[TakenAmounts]]
    ) -> None:
        met = states, ahead, tuple(sorted(taken.items()))
        if met in self._met:
            return
        self._met.add(met)
        optional = [self.pods[step.pod].request for step in ahead if self._may_stay_away(step)]
        if len(optional) == len(ahead):
            self.sights.add(
                (
                    states,
                    tuple(
                        sorted(Counter(each.key for each in optional if each is not None).items())
                    ),
                )
            )
        for step in ahead:
            if may_be_next(step, ahead):
                (self._end if step.ends else self._come)(states, ahead, taken, step)

    def _end(
        self,
        states: NodeState,
        ahead: frozenset[Step],
        taken: dict[int, Sequence[TakenAmounts]],
        step: Step,
    ) -> None:
        pod = self.pods[step.pod]
        if isinstance(pod, EndedPod) and pod.request is None:
            self._from(self.model.released(states, pod.held), ahead - {step}, taken)
        elif step.pod in taken:
            rest = {number: held for number, held in taken.items() if number != step.pod}
            self._from(self.model.given_back(states, taken[step.pod]), ahead - {step}, rest)

    def _come(
        self,
        states: NodeState,
        ahead: frozenset[Step],
        taken: dict[int, Sequence[TakenAmounts]],
        step: Step,
    ) -> None:
        pod = self.pods[step.pod]
        assert pod.request is not None
        admitted, rest = self.model.admit(states, pod.request), ahead - {step}
        for state in admitted.states:
            self._from(
                state,
                rest,
                {**taken, step.pod: self.model.taken(states, state)}
                if isinstance(pod, EndedPod)
                else taken,
            )
        if isinstance(pod, EndedPod) and not pod.since:
            self._from(states, frozenset(each for each in rest if each.pod != step.pod), taken)
        elif admitted.refused and self._may_stay_away(step):
            if all(self._may_stay_away(each) for each in rest):
                self.may_be_rejected.add(pod.request.key)
            self._from(states, rest, taken)

    def _may_stay_away(self, step: Step) -> bool:
        pod = self.pods[step.pod]
        return isinstance(pod, PendingAdmission) and not pod.runs_at


@given(scenes())
@settings(max_examples=examples(200), deadline=None)
def test_it_reaches_the_states_of_every_order(scene: Scene) -> None:
    coming = [pod for pod in scene.pods if isinstance(pod, PendingAdmission)]
    gone = [pod for pod in scene.pods if isinstance(pod, EndedPod)]
    orders = Orders((*coming, *gone))
    reached = reachable_states_after_ends(scene.model, scene.bases, orders, Budget(1 << 20))
    keys = [kind.request.key for kind in reached.kinds]
    plain = Plain(scene._replace(pods=(*coming, *gone)))
    assert {keys[kind] for kind in reached.may_be_rejected} == plain.may_be_rejected
    assert {
        (
            moment.states,
            tuple(
                sorted(
                    (key, count) for key, count in zip(keys, moment.pending, strict=True) if count
                )
            ),
        )
        for moment in reached.search_states
    } == plain.sights


@given(scenes())
@settings(max_examples=examples(200), deadline=None)
def test_it_gives_up_at_once_only_where_the_budget_would_not_have_been_enough(scene: Scene) -> None:
    coming = [pod for pod in scene.pods if isinstance(pod, PendingAdmission)]
    gone = [pod for pod in scene.pods if isinstance(pod, EndedPod)]
    budget, orders = Budget(1 << 20), Orders((*coming, *gone))
    reached = reachable_states_after_ends(scene.model, scene.bases, orders, budget)
    needed = (1 << 20) - budget.left
    assert reachable_states_after_ends(scene.model, scene.bases, orders, Budget(needed)) == reached
    if needed:
        short = Budget(needed - 1)
        with pytest.raises(OverBudgetError):
            reachable_states_after_ends(scene.model, scene.bases, orders, short)
        event(f"known from the start: {short.left > 0}")


def cpus(count: int) -> HintRequest:
    return request_of((ContainerDemand("c", "app", amounts(count)),))


@pytest.mark.parametrize(
    "known",
    [PendingAdmission(cpus(SIZE + 1), 1, 2), EndedPod((), cpus(SIZE + 1), 1, 2, 3, since=True)],
)
def test_no_state_is_dropped_if_a_pod_is_known_to_have_come_that_cannot_have(
    known: PendingAdmission | EndedPod,
) -> None:
    """The search ends at that pod, although more pods may follow."""
    seen = observe(
        report("n", [zone(0, amounts(SIZE), amounts(SIZE))], "single-numa-node"),
        (),
        "single-numa-node",
        "pod",
        False,
    )
    assert seen is not None
    coming = [
        *([known] if isinstance(known, PendingAdmission) else ()),
        *(PendingAdmission(cpus(1), 4) for _ in range(8)),
    ]
    gone = [known] if isinstance(known, EndedPod) else []
    orders = Orders((*coming, *gone))
    reached = reachable_states_after_ends(seen.model, seen.bases, orders, Budget(1))
    assert reached.search_states == ()


@given(scenes())
@settings(max_examples=examples(200), deadline=None)
def test_sampled_states_are_states_that_some_order_reaches(scene: Scene) -> None:
    coming = [pod for pod in scene.pods if isinstance(pod, PendingAdmission)]
    gone = [pod for pod in scene.pods if isinstance(pod, EndedPod)]
    orders = Orders((*coming, *gone))
    sampled = {state for state, _ in sample_states(scene.model, scene.bases, orders)}
    reached = {states for states, _ in Plain(scene._replace(pods=(*coming, *gone))).sights}
    event(f"sampled {len(sampled)} of {len(reached)}")
    assert sampled <= reached
    assert sampled or not reached or len(gone) > 1
