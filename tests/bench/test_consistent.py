"""The oracle with the same news follows every consistent state: held equal to every order of events
on small nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import msgspec
import pytest

from shared.domain.pod import Container, Pod
from shared.domain.resources import CPU, MEMORY
from shared.kubelet.admission import admit, drop_stale, remove, start_containers
from shared.kubelet.machine import KubeletState
from tests.bench.quality.consistent import UNHEARD, Consistent, Step
from tests.scheduler.kubelet_worlds import random_pod
from tests.scheduler.test_cycle_ends import Past

MOST_STEPS = 5


def orders(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Return every order that is consistent with the observed events: all of them, and any subset
    of the others.
    """
    heard = [step for step in steps if step.last_s < UNHEARD]
    rest = [step for step in steps if step.last_s == UNHEARD]
    for count in range(len(rest) + 1):
        for some in combinations(rest, count):
            yield from (order for order in permutations((*heard, *some)) if is_possible(order))


def is_possible(order: Sequence[Step]) -> bool:
    """Return whether the order is possible: no pod is admitted before pods that precede it for
    certain, and none ends before its own admission, or before that of a pod that started in an
    earlier second.
    """
    pairs = [(one, other) for at, one in enumerate(order) for other in order[at + 1 :]]
    return not any(
        later.last_s <= one.first_s or (one.ends and comes_first(later, one))
        for one, later in pairs
    )


def comes_first(admission: Step, end: Step) -> bool:
    return not admission.ends and (admission.uid == end.uid or 0 < admission.clock_s < end.clock_s)


def after(
    state: KubeletState, order: Sequence[Step], pods: dict[str, Pod]
) -> tuple[KubeletState | None, set[str]]:
    """Return the state then and the rejected pods; None if a pod is rejected that is known to have
    come.
    """
    refused = set()
    for step in order:
        if step.ends:
            state = drop_stale(remove(state, step.uid))
            continue
        verdict = admit(state, pods[step.uid])
        if verdict.admitted:
            state = start_containers(drop_stale(verdict.state), pods[step.uid])
        elif step.last_s < UNHEARD:
            return None, set()
        else:
            refused.add(step.uid)
    return state, refused


def by_orders(consistent: Consistent, newcomer: Pod) -> bool:
    steps, pods = (
        list(consistent._steps()),
        {uid: each.pod for uid, each in consistent._sent.items()},
    )
    kinds = {uid: repr(pod.containers) for uid, pod in pods.items()}
    answers = [(order, *after(consistent._base, order, pods)) for order in orders(steps)]
    doomed = {kinds[uid] for _, state, refused in answers if state is not None for uid in refused}
    for order, state, _ in answers:
        if state is None:
            continue
        verdict = admit(state, newcomer)
        if not verdict.admitted:
            return False
        taken = start_containers(drop_stale(verdict.state), newcomer)
        for rest in permutations([step for step in steps if step not in order]):
            if any(kinds[uid] not in doomed for uid in after(taken, rest, pods)[1]):
                return False
    return True


@pytest.mark.parametrize("policy", ["single-numa-node", "best-effort"])
def test_it_admits_what_every_order_of_events_admits(policy: str) -> None:
    counts = {True: 0, False: 0}
    for seed in range(120):
        past = Past(seed, policy, "container")
        if len(list(past.known._steps())) > MOST_STEPS:
            continue
        newcomer = random_pod(past.rng, "decided")
        expected = by_orders(past.known, newcomer)
        assert past.known.admits(newcomer) == expected, seed
        counts[expected] += 1
    assert min(counts.values()) > 15, counts


def test_a_pod_that_represents_its_kind_is_a_newcomer_although_it_runs_on_the_node() -> None:
    """Pods of one class share their verdicts, and the judged one may be on the node: a kubelet
    would take it again at no cost. Another of its class needs amounts of its own.
    """
    amounts = {CPU: 1000, MEMORY: 2**20}
    pod = Pod("0", "bench", "one", "Guaranteed", (Container("main", "app", amounts, amounts),))
    state = Past(0, "single-numa-node", "container").known._base
    verdict = admit(state, pod)
    while verdict.admitted:
        state, pod = verdict.state, msgspec.structs.replace(pod, uid=f"{int(pod.uid) + 1}")
        verdict = admit(state, pod)
    assert "0" in state.pods
    consistent = Consistent(state)
    assert not consistent.admits(state.pods["0"].pod)
    assert not consistent.admits(pod)
