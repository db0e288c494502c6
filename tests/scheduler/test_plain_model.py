"""On plain nodes, searches on the plain form and on the kubelet model find the same."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st

from services.scheduler.filter.topology.compiled_search import CompiledExploration
from services.scheduler.snapshot import kernel
from shared.domain.demand import ContainerDemand
from shared.domain.pod import ContainerKind
from shared.domain.report import Zone, ZonedAmount, ZoneResource
from shared.domain.resources import Amounts
from shared.hints.admission import KubeletModel, NodeState
from shared.hints.admission_orders import UNKNOWN, PendingAdmission, ReachableStates
from shared.hints.exploration import Exploration
from shared.hints.observing import observe
from shared.hints.orders import EndedPod, Pod
from shared.hints.plain_model import PlainForm, PlainModel, plain_form
from shared.hints.provider import AmountsByZone
from shared.hints.request import HintRequest, request_of
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import report

UNITS: Amounts = {"cpu": 1000, "memory": 1 << 30, "hugepages-2Mi": 1 << 21, "example.com/gpu": 1}
SIZE = 5
MANY = 20_000


class Scene(NamedTuple):
    model: KubeletModel
    bases: tuple[NodeState, ...]
    pending: tuple[PendingAdmission, ...]
    ended_pods: tuple[EndedPod, ...]
    newcomer: HintRequest

    def exact(self) -> Exploration:
        return Exploration(self.model, self.bases, self.pending, self.ended_pods)

    def plain_form(self) -> PlainForm | None:
        pods: tuple[Pod, ...] = (*self.pending, *self.ended_pods)
        requests = [pod.request for pod in pods if pod.request is not None]
        return plain_form(self.model, self.bases, requests, [pod.held for pod in self.ended_pods])

    def plain(self, form: PlainForm) -> Exploration:
        return Exploration(form.model, form.bases, self.pending, self.ended_pods)


@st.composite
def requests(draw: st.DrawFn) -> HintRequest:
    containers = draw(
        st.lists(
            st.dictionaries(st.sampled_from(list(UNITS)), st.integers(1, SIZE + 1), min_size=1),
            min_size=1,
            max_size=2,
        )
    )
    kinds: list[ContainerKind] = [draw(st.sampled_from(("app", "sidecar"))) for _ in containers]
    return request_of(
        tuple(
            ContainerDemand(f"c{at}", kind, {name: n * UNITS[name] for name, n in amounts.items()})
            for at, (kind, amounts) in enumerate(zip(kinds, containers, strict=True))
        )
    )


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Not all zones have all resources, and each has some in use, partly by pods that ended."""
    zones, holdings = [], list[ZonedAmount]()
    for number in range(draw(st.integers(2, 3))):
        resources = {}
        for name, unit in UNITS.items():
            size = draw(st.sampled_from((0, SIZE, SIZE, SIZE - 1)))
            used, listed = draw(st.integers(-1, size)), draw(st.integers(0, 2))
            if size:
                resources[name] = ZoneResource(size * unit, size * unit, (size - used) * unit)
                holdings.append(ZonedAmount(name, (number,), listed * unit))
        zones.append(Zone(number, resources))
    policy = "single-numa-node"
    shown = report("n", zones, policy, tracked=tuple(UNITS))
    observed = observe(shown, (), policy, "container", False)
    assert observed is not None
    pending = list[PendingAdmission]()
    for _ in range(draw(st.integers(0, 4))):
        sent = draw(st.integers(1, 6))
        pending.append(
            PendingAdmission(draw(requests()), sent, draw(st.sampled_from((0, sent + 1))))
        )
    ended = list[EndedPod]()
    if draw(st.booleans()) and pending:
        ended.append(EndedPod(tuple(holdings), ended=draw(st.integers(2, 8))))
        for _ in range(draw(st.integers(0, 2))):
            runs, gone = draw(st.sampled_from((0, 3))), draw(st.integers(3, 6))
            since = runs > 0 and draw(st.booleans())
            ended.append(EndedPod((), draw(requests()), 2, runs, gone, since))
    newcomer = draw(requests())
    return Scene(observed.model, observed.bases, tuple(pending), tuple(ended), newcomer)


def packed(scene: Scene, model: PlainModel, states: NodeState) -> NodeState:
    """Return a state of the kubelet model in plain form."""
    free: AmountsByZone = {}
    for manager, state in zip(scene.model.managers, states, strict=True):
        amounts = manager.plain_amounts(state)
        assert amounts is not None
        for zone, items in amounts.free.items():
            free.setdefault(zone, {}).update(items)
    return model.packed(free)


def seen(scene: Scene, model: PlainModel, before: ReachableStates) -> object:
    states = {(packed(scene, model, states), counts) for states, counts in before.search_states}
    return states, before.may_be_rejected


@given(scenes())
@settings(max_examples=examples(100), deadline=None)
def test_the_plain_form_reaches_the_same_states_and_gives_the_same_answers(scene: Scene) -> None:
    form = scene.plain_form()
    if form is None or form.model.needs(scene.newcomer) is None:
        event("not plain")
        return
    exact, plain = scene.exact(), scene.plain(form)
    exact_before, plain_before = exact.before(MANY), plain.before(MANY)
    assert exact_before is not None
    assert plain_before is not None
    assert [seen(scene, form.model, reachable) for reachable in exact_before] == [
        (set(reachable.search_states), reachable.may_be_rejected) for reachable in plain_before
    ]
    answer = exact.search(scene.newcomer, MANY).result
    event(answer)
    assert answer == plain.search(scene.newcomer, MANY).result
    refuses = exact.refuses_when_full(scene.newcomer)
    assert refuses == plain.refuses_when_full(scene.newcomer)
    assert not refuses or answer in ("refused", UNKNOWN)


@given(scenes(), st.one_of(st.integers(0, 400), st.just(MANY)))
@settings(max_examples=examples(200), deadline=None)
def test_the_kernel_answers_as_the_plain_form_within_every_budget(scene: Scene, steps: int) -> None:
    form = scene.plain_form()
    if kernel.COMPILED is None or form is None or form.model.needs(scene.newcomer) is None:
        return
    plain = Exploration(form.model, form.bases, scene.pending, scene.ended_pods)
    compiled = CompiledExploration(form.model, form.bases, scene.pending, scene.ended_pods)
    answer = plain.search(scene.newcomer, steps)
    event(f"{answer.result}, {len(scene.ended_pods)} ended")
    assert compiled.search(scene.newcomer, steps) == answer
