"""Properties that every hint provider has, those of the registry and of the tests alike: every
registered provider is tried.

Nodes are random kubelets with pods, as the production exporter reports them; a resource that the
model does not know is two devices in each zone. `brute.py` says in plain words what a verdict is.
The last tests break a provider on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest

from services.scheduler.filter.topology.bounds import possible
from services.scheduler.filter.topology.fit import is_sure
from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import ContainerKind, Pod
from shared.domain.report import Placement, Report, ZonedAmount
from shared.eventlog.closure import key_of
from shared.hints import registry
from shared.hints.provider import (
    NO_OPINION,
    HintProvider,
    Observed,
    RequestedAmounts,
    ResourceManager,
    Reusable,
)
from shared.hints.request import request_of
from shared.hints.splits import TooManyChoicesError
from shared.kubelet.admission import admit, drop_stale, remove
from shared.kubelet.device_state import Device
from shared.kubelet.hint import Hint
from shared.kubelet.machine import KubeletState
from shared.kubelet.topology_manager import NO_HINT
from tests.hints.brute import Kubelet
from tests.hints.examples import EVERY, held, resources
from tests.hints.licences import LicenceManager, Licences
from tests.kubelet.machines import GPU, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, proven_world, random_pod, report_of
from tests.scheduler.test_cycle_soundness import RULES

ROUNDS = 30
STEPS = 50_000


class Tried(NamedTuple):
    """A kubelet, and the states that one provider observes."""

    state: KubeletState
    report: Report
    seen: Observed
    rng: random.Random

    def asked(self, provider: HintProvider) -> RequestedAmounts:
        """Return requests that zones can hold."""
        most = {
            name: amounts.capacity
            for zone in self.report.zones
            for name, amounts in zone.resources.items()
        }
        names = [name for name in resources(provider) if name in most]
        chosen = self.rng.sample(names, self.rng.randint(1, len(names))) if names else []
        unit = {
            name: 1000 if name == "cpu" else 1 << 30 if most[name] >= 1 << 30 else 1
            for name in chosen
        }
        return tuple(
            sorted(
                (name, unit[name] * self.rng.randint(1, 2 * most[name] // unit[name]))
                for name in chosen
            )
        )


def use(monkeypatch: pytest.MonkeyPatch, provider: HintProvider) -> None:
    """Register the provider after the kubelet's own, or use it as one of them."""
    providers = (
        registry.PROVIDERS if provider in registry.PROVIDERS else (*registry.PROVIDERS, provider)
    )
    monkeypatch.setattr(registry, "PROVIDERS", providers)


def a_kubelet(
    rng: random.Random,
    policy: str,
    scope: str,
    provider: HintProvider,
    pods: int = 3,
    inits: bool = True,
) -> KubeletState:
    zones = rng.choice((2, 2, 3))
    pools = {
        name: {f"{name}-{z}-{number}": Device(1 << z) for z in range(zones) for number in (0, 1)}
        for name in devices(provider)
    }
    state = kubelet(zones, policy, scope, cores_per_zone=rng.choice((2, 4)))
    state = msgspec.structs.replace(
        state, devices=msgspec.structs.replace(state.devices, registered=pools)
    )
    for number in range(rng.randint(0, pods)):
        state = admit(state, a_pod(rng, f"settled{number}", provider, inits)).state
    return drop_stale(state)


def devices(provider: HintProvider) -> list[str]:
    return [name for name in resources(provider) if "/" in name] or [GPU]


def a_pod(rng: random.Random, name: str, provider: HintProvider, inits: bool = True) -> Pod:
    """Return a pod with one of the provider's resources instead of GPUs. With `inits` some pods
    have init containers and sidecars.
    """
    instead = rng.choice(devices(provider))
    pod = random_pod(rng, name)
    renamed = [
        {instead if entry == GPU else entry: amount for entry, amount in part.requests.items()}
        for part in pod.containers
    ]
    parts = [
        msgspec.structs.replace(part, requests=r, limits=r)
        for part, r in zip(pod.containers, renamed, strict=True)
    ]
    return msgspec.structs.replace(
        pod, containers=tuple(part for part in parts if inits or part.kind == "app")
    )


def observed(provider: HintProvider, state: KubeletState, policy: str) -> tuple[Report, Observed]:
    report = report_of(state, stored=True)
    return report, provider.observe(report, report.placements or (), policy, True)


def tried(provider: HintProvider, policy: str, scope: str, seed: int) -> Tried:
    rng = random.Random(f"{key_of(provider)} {policy} {scope} {seed}")
    state = a_kubelet(rng, policy, scope, provider)
    return Tried(state, *observed(provider, state, policy), rng)


# -- states and books
# --------------------------------------------------------------------------------------------------


def immutable(value: Any) -> bool:
    """Return whether the value and all its parts are immutable."""
    if isinstance(value, tuple | frozenset):
        return all(immutable(entry) for entry in value)
    if isinstance(value, msgspec.Struct):
        return value.__struct_config__.frozen and all(
            immutable(getattr(value, name)) for name in value.__struct_fields__
        )
    return value is None or isinstance(value, int | str | bytes)


def check_states(provider: HintProvider, policy: str, scope: str, rounds: int = ROUNDS) -> None:
    """Check that states are immutable, hashable, and equal for equal reports."""
    for seed in range(rounds):
        case = tried(provider, policy, scope, seed)
        again = observed(provider, case.state, policy)[1]
        assert (again.states, again.bounds) == (case.seen.states, case.seen.bounds), seed
        assert (hash(again.manager), again.manager) == (
            hash(case.seen.manager),
            case.seen.manager,
        ), "equal nodes share their book"
        assert case.seen.states, seed
        assert len(case.seen.states) == 1 or case.seen.bounds, "what may be so or so is named"
        assert all(immutable(state) for state in case.seen.states), seed


def check_hints(provider: HintProvider, policy: str, scope: str, rounds: int = ROUNDS) -> None:
    """Check that `single` returns exactly the zones that `hints` prefers as single zones."""
    for seed in range(rounds):
        case = tried(provider, policy, scope, seed)
        for state in case.seen.states if policy != "none" else ():
            asked = case.asked(provider)
            if asked:
                answer, hints = (
                    case.seen.manager.single(state, None, asked),
                    case.seen.manager.hints(state, None, asked),
                )
                assert answer == alone(hints), (seed, asked, answer, hints)


def alone(hints: dict[str, list[Hint] | None] | None) -> int:
    """Return the zones that every resource with a preference prefers as single zones. An empty map
    is no preference, but means that no zone holds the request.
    """
    if hints == {}:
        return 0
    case = NO_OPINION
    for entry in (hints or {}).values():
        if entry is not None:
            case &= sum(
                {
                    hint.mask
                    for hint in entry
                    if hint.mask and hint.preferred and not hint.mask & (hint.mask - 1)
                }
            )
    return case


def check_allocations(provider: HintProvider, policy: str, scope: str, rounds: int = ROUNDS) -> int:
    """Check that states do not change, and that an end returns the allocation, by the taken and by
    the listed amounts. Return how often the latter was tried.
    """
    listed = 0
    for seed in range(rounds):
        case = tried(provider, policy, scope, seed)
        manager, asked = case.seen.manager, case.asked(provider)
        for state in case.seen.states if asked else ():
            text_before = repr(state)
            for hint in offers(manager, state, asked, policy):
                for allocated_state, reused in allocated(manager, state, asked, hint):
                    assert immutable((allocated_state, reused)), (seed, allocated_state, reused)
                    check_given_back(manager, state, allocated_state, reused, seed)
                    zone = (hint.mask or 0).bit_length() - 1
                    if hint.mask == 1 << max(zone, 0) and policy != "none":
                        taken = held(provider, state, allocated_state, asked, zone)
                        assert manager.release(allocated_state, taken) == state, (seed, asked, hint)
                        assert manager.hold(state, taken) == allocated_state, (seed, asked, hint)
                        listed += 1
            assert repr(state) == text_before, seed
    return listed


def offers(
    manager: ResourceManager, state: Any, asked: RequestedAmounts, policy: str
) -> Sequence[Hint]:
    if policy == "none":
        return [NO_HINT]
    entry = [hints for hints in (manager.hints(state, None, asked) or {}).values() if hints]
    case = [hint for hint in entry[0] if all(hint in others for others in entry)] if entry else []
    return case[:6]


def allocated(
    manager: ResourceManager, state: Any, asked: RequestedAmounts, hint: Hint
) -> Sequence[tuple[Any, Reusable]]:
    try:
        return manager.allocate(state, None, asked, "app", hint)
    except TooManyChoicesError:
        return ()


def check_given_back(
    manager: ResourceManager, text_before: Any, allocated_state: Any, reused: Reusable, seed: int
) -> None:
    state_after = manager.after_admission(allocated_state, reused)
    assert not manager.later(state_after) or manager.later(text_before), (
        "an app container leaves nothing that ends by itself"
    )
    try:
        taken = manager.taken(text_before, state_after)
    except TooManyChoicesError:
        return
    assert immutable(taken), taken
    assert manager.given_back(state_after, taken) == text_before, (
        seed,
        text_before,
        state_after,
        taken,
    )


def check_the_road(provider: HintProvider, policy: str, scope: str, rounds: int = ROUNDS) -> int:
    """Check that the next report agrees with `allocate`, and the report after the pod's end with
    `release`. Return the number of checks.
    """
    met = 0
    for seed in range(rounds):
        rng = random.Random(f"{key_of(provider)} {policy} {scope} {seed} road")
        pod = a_pod(rng, "p", provider, inits=False)
        came = admit(a_kubelet(rng, policy, scope, provider, inits=False), pod)
        if not came.admitted:
            continue
        listing_report, answer = observed(provider, came.state, policy)
        if any(not entry.pod for entry in listing_report.hidden):
            continue  # the ledger, not a provider, sorts out stale entries (`_sort_hidden`)
        gone = observed(provider, drop_stale(remove(came.state, pod.uid)), policy)[1]
        ended = [
            item
            for entry in listing_report.placements or ()
            if entry.pod == "p"
            for item in entry.held
        ]
        assert {answer.manager.release(state, ended) for state in answer.states} == set(
            gone.states
        ), seed
        met += any(provider.owns(item.resource) for item in ended)
    return met


# -- verdicts
# --------------------------------------------------------------------------------------------------


def a_world(rng: random.Random, policy: str, scope: str, provider: HintProvider) -> World:
    """Return a cluster with confirmed pods, up to two pending pods, and a Node object that allows
    everything.
    """
    world = proven_world(a_kubelet(rng, policy, scope, provider, pods=2), CycleConfig())
    observed = world.ledger.nodes[NODE].observed
    assert observed is not None
    world.observe(NODE, allocatable=dict.fromkeys(observed.allocatable, 1 << 50))
    for number in range(rng.choice((0, 0, 1, 2))):
        world.bound(a_pod(rng, f"coming{number}", provider), NODE)
    return world


def check_verdicts(
    provider: HintProvider, policy: str, scope: str, rounds: int = ROUNDS
) -> tuple[int, int]:
    """Check that a certain fit is admitted, that an admitted pod may fit, and that the filter
    result is that of brute force. Return how many pods passed and how many were refused.
    """
    passed = refused = 0
    for seed in range(rounds):
        rng = random.Random(f"{key_of(provider)} {policy} {scope} {seed} verdicts")
        world, new = a_world(rng, policy, scope, provider), a_pod(rng, "new", provider)
        cluster, node_info = world.cluster, world.cluster.node(NODE)
        assert node_info is not None
        pod_class = cluster.evaluator.pod_class(new)
        plan, states = pod_class.plan(node_info.profile), None
        if plan.mode != "free":
            states = kubelet_search_of(node_info, plan).states
        if states is None or len(states.bases) > 4:
            continue
        brute = Kubelet(states.model.topology_manager, states.model.managers)
        admitted = (
            brute.verdict(states.bases, states.pending, request_of(plan.demand)) == "admitted"
        )
        if not plan.needs_search:
            assert admitted or not is_sure(node_info, pod_class, plan), (seed, "sufficient")
            assert possible(node_info, plan) or not admitted, (seed, "necessary")
        cluster.evaluator.evaluate_all_if_new(pod_class)
        number = pod_class.row, node_info.slot
        if cluster.evaluator.cache.sure[number] and not node_info.pending:
            assert bool(cluster.evaluator.cache.scores[number] != RULED_OUT) is admitted, (
                seed,
                "swept",
            )
        answer = cluster.verdict(new, NODE)
        assert (answer is None) is admitted, (seed, answer)
        assert isinstance(cluster.place(new), Placed) is admitted, seed
        passed, refused = passed + admitted, refused + (not admitted)
    return passed, refused


ALL = pytest.mark.parametrize(
    "provider", EVERY, ids=lambda entry: f"{entry.name}{list(EVERY).index(entry)}"
)
BY_RULE = pytest.mark.parametrize(("policy", "scope"), RULES)
BY_POLICY = pytest.mark.parametrize(
    ("policy", "scope"), [rule for rule in RULES if rule[1] == "container"]
)


@ALL
@BY_POLICY
def test_states_are_values(
    monkeypatch: pytest.MonkeyPatch, provider: HintProvider, policy: str, scope: str
) -> None:
    use(monkeypatch, provider)
    check_states(provider, policy, scope)


@ALL
@BY_POLICY
def test_single_zones_are_those_of_the_hints(
    monkeypatch: pytest.MonkeyPatch, provider: HintProvider, policy: str, scope: str
) -> None:
    use(monkeypatch, provider)
    check_hints(provider, policy, scope)


@ALL
@BY_POLICY
def test_an_end_returns_every_allocated_amount(
    monkeypatch: pytest.MonkeyPatch, provider: HintProvider, policy: str, scope: str
) -> None:
    use(monkeypatch, provider)
    assert check_allocations(provider, policy, scope) > 2 or policy == "none"


@pytest.mark.parametrize("provider", registry.KUBELETS_OWN, ids=lambda entry: entry.name)
@BY_POLICY
def test_reports_show_allocations_and_releases(
    provider: HintProvider, policy: str, scope: str
) -> None:
    assert check_the_road(provider, policy, scope) > 1


@ALL
@BY_RULE
def test_verdicts_are_those_of_brute_force(
    monkeypatch: pytest.MonkeyPatch, provider: HintProvider, policy: str, scope: str
) -> None:
    use(monkeypatch, provider)
    passed, refused = check_verdicts(provider, policy, scope)
    assert passed > 3
    assert refused > 3


# -- broken on purpose
# --------------------------------------------------------------------------------------------------


class AnyZone(LicenceManager, frozen=True):
    """A provider whose `single` allows every zone, although its hints name only its own zone."""

    def single(self, state: int, reusable: Reusable, requested: RequestedAmounts) -> int:
        return 3 if requested else NO_OPINION


class Keeping(LicenceManager, frozen=True):
    """A manager that gets one licence less back than it gave."""

    def given_back(self, state: int, taken: int) -> int:
        return state + max(0, taken - 1)


class Deaf(LicenceManager, frozen=True):
    """A provider that ignores ends."""

    def release(self, state: int, held: Sequence[ZonedAmount]) -> int:
        return state


class Listing(LicenceManager, frozen=True):
    """A provider whose states may change."""

    def allocate(
        self,
        state: Any,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[Any, Reusable]]:
        return (([state - requested[0][1]], reusable),)


class Broken(Licences, frozen=True):
    """The provider of licences with another manager."""

    manager: LicenceManager = LicenceManager()

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        return msgspec.structs.replace(
            super().observe(report, placements, policy, fine), manager=self.manager
        )


class Boasting(Licences, frozen=True):
    """A provider that claims that amounts bound it, although it has one zone only."""

    by_amounts: ClassVar[bool] = True


class Vague(Licences, frozen=True):
    """A provider with several states that does not say why."""

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        return Observed(LicenceManager(), (1, 2))


@pytest.mark.parametrize(
    ("provider", "check"),
    [
        (Broken(manager=AnyZone()), check_hints),
        (Broken(manager=Keeping()), check_allocations),
        (Broken(manager=Deaf()), check_allocations),
        (Broken(manager=Listing()), check_allocations),
        (Broken(manager=AnyZone()), check_verdicts),
        (Boasting(), check_verdicts),
        (Vague(), check_states),
    ],
    ids=lambda entry: (
        type(getattr(entry, "manager", entry)).__name__
        if isinstance(entry, Licences)
        else entry.__name__
    ),
)
def test_a_provider_that_breaks_a_rule_is_seen(
    monkeypatch: pytest.MonkeyPatch,
    provider: HintProvider,
    check: Callable[[HintProvider, str, str, int], object],
) -> None:
    use(monkeypatch, provider)
    with pytest.raises(AssertionError):
        check(provider, "single-numa-node", "container", 10 * ROUNDS)


def test_a_provider_without_an_example_is_reported_with_a_remedy() -> None:
    class Elsewhere(Licences, frozen=True):
        def owns(self, resource: str) -> bool:
            return resource == "example.com/elsewhere"

    with pytest.raises(
        AssertionError, match=r"give RESOURCES in tests/hints/examples\.py one of its own"
    ):
        resources(Elsewhere())
