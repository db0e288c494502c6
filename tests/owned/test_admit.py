"""The allocation of a pod on a node whose zones Topolog chooses: examples, and properties on small
machines.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.policies import NONE
from shared.domain.refusal import Reason, Refusal
from shared.kubelet.cpuset import format_cpus
from shared.kubelet.masks import mask_of, nodes_of
from shared.owned import refusals
from shared.owned.admit import admit, exclusive_of, merged_hint, one_zone
from shared.owned.allocate import Trial, allocate, is_possible, trial_of
from shared.owned.cpu_choice import CpuRequest, HeldCpus, choose_cpus, take_in_steps
from shared.owned.free import free_of, less
from shared.owned.policy import combined_policy
from shared.owned.values import Allocation, Holding, OwnedNode, OwnedRequest, ZoneAmounts
from tests.owned.machines import (
    GIB,
    allocation,
    cpu_set,
    machine,
    node,
    nodes,
    placed,
    refusal,
    requests,
    share,
)
from tests.owned.reference import chosen_mask, masks_that_fit

SINGLE, RESTRICTED, BEST_EFFORT = "single-numa-node", "restricted", "best-effort"


def held(zone: int, cpu: int, gib: int = 0) -> Holding:
    amounts = {"cpu": cpu, **({"memory": gib * GIB} if gib else {})}
    return Holding(zones=(ZoneAmounts(zone, amounts),))


def by_zone(given: Allocation, resource: str = "cpu") -> dict[int, int]:
    return {record.zone: record.amounts[resource] for record in given.holding.zones}


@settings(max_examples=120)
@given(nodes(), st.lists(requests(), max_size=5), requests())
def test_an_allocation_gives_what_was_asked_inside_its_mask(
    owner: OwnedNode, earlier: list[OwnedRequest], request: OwnedRequest
) -> None:
    holdings = placed(owner, earlier)
    free = free_of(owner, holdings)
    outcome = admit(owner, free, request)
    if isinstance(outcome, Refusal):
        return
    for resource, asked in request.amounts.items():
        given_amounts = [record.amounts.get(resource, 0) for record in outcome.holding.zones]
        assert sum(given_amounts) in (asked, 0 if outcome.policy == NONE else asked)
    for record in outcome.holding.zones:
        assert outcome.mask is None or outcome.mask >> record.zone & 1
        assert all(free.amounts[record.zone][name] >= n for name, n in record.amounts.items())
    taken = outcome.holding.cpus
    assert not taken & ~free.cpus
    assert not any(taken & holding.cpus for holding in holdings)
    assert not taken & owner.reserved_cpus
    if outcome.bind:
        assert taken.bit_count() == request.amounts["cpu"] // 1000
        assert outcome.mask is None or _zones_of(owner, taken) <= set(nodes_of(outcome.mask))


@settings(max_examples=100)
@given(nodes(), st.lists(requests(), max_size=4), requests(), st.integers(1, 15))
def test_a_mask_is_possible_exactly_if_it_can_be_allocated(
    owner: OwnedNode, earlier: list[OwnedRequest], request: OwnedRequest, mask: int
) -> None:
    free = free_of(owner, placed(owner, earlier))
    trial = trial_of(owner, free, request)
    mask &= mask_of(free.zones)
    if isinstance(trial, Trial) and mask:
        assert is_possible(trial, mask) == isinstance(allocate(trial, mask), Holding)


def test_a_zone_with_fewer_cpus_than_its_amount_is_not_offered() -> None:
    owner = node(zones=2, cores=4)
    free = free_of(owner, [])
    trial = trial_of(owner, msgspec.structs.replace(free, cpus=free.cpus & ~0b111111), cpu_set(4))
    assert isinstance(trial, Trial)
    assert [is_possible(trial, mask) for mask in (0b01, 0b10)] == [False, True]


@settings(max_examples=60)
@given(
    nodes(),
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["FullPCPUs", "SpreadByPCPUs"]))),
)
def test_no_cpu_is_in_two_sets(owner: OwnedNode, pods: list[tuple[int, str]]) -> None:
    holdings = placed(owner, [cpu_set(count, bind=bind) for count, bind in pods])
    union = 0
    for holding in holdings:
        assert not union & (holding.cpus | owner.reserved_cpus)
        union |= holding.cpus


def _zones_of(owner: OwnedNode, cpus: int) -> set[int]:
    assert owner.cpus is not None
    return {zone for zone, every in owner.cpus.in_zone.items() if every & cpus}


@settings(max_examples=120)
@given(nodes(), st.lists(requests(), max_size=4), requests())
def test_the_mask_is_that_of_the_plain_merge_over_every_mask(
    owner: OwnedNode, earlier: list[OwnedRequest], request: OwnedRequest
) -> None:
    free = free_of(owner, placed(owner, earlier))
    policy = combined_policy(owner.policy, request.policy)
    if policy in (None, NONE) or isinstance(trial_of(owner, free, request), Refusal):
        assert isinstance(admit(owner, free, request), Refusal)
        return
    outcome, mask = admit(owner, free, request), chosen_mask(owner, free, request)
    fits = masks_that_fit(owner, free, request)
    if mask is None or mask not in fits:
        assert isinstance(outcome, Refusal)
        return
    assert isinstance(outcome, Allocation)
    chosen = mask_of(free.zones) if outcome.mask is None else outcome.mask
    assert chosen.bit_count() == mask.bit_count()
    assert outcome.holding == fits[chosen]


@pytest.mark.parametrize(
    ("strategy", "used", "expected"),
    [("LeastAllocated", [], 0), ("LeastAllocated", [held(0, 4000)], 1),
     ("MostAllocated", [held(0, 4000)], 0)],
)  # fmt: skip
def test_single_zone_by_strategy(strategy: str, used: list[Holding], expected: int) -> None:
    """LeastAllocated takes the zone with the most free CPUs, MostAllocated the one with the
    fewest.
    """
    owner = node(policy=SINGLE, zone_strategy=strategy)
    assert by_zone(allocation(owner, share(4000, 4), *used)) == {expected: 4000}


def test_restricted_spills_over_zones_by_free_amounts_and_not_by_capacity() -> None:
    """4 of 8 CPUs are free in both zones, and the pod asks 6."""
    used = held(0, 4000), held(1, 4000)
    owner = node(policy=RESTRICTED)
    assert by_zone(allocation(owner, share(6000), *used)) == {0: 3000, 1: 3000}
    by_capacity = msgspec.structs.replace(owner, preferred="capacity")
    assert refusal(by_capacity, share(6000), *used).resource == "cpu"


def test_the_roomiest_zone_gives_the_rest() -> None:
    owner = node(policy=RESTRICTED)
    used = held(0, 6000)
    assert by_zone(allocation(owner, share(9000), used)) == {0: 2000, 1: 7000}
    assert by_zone(allocation(owner, share(6000), used)) == {1: 6000}


def test_the_founding_example_is_placed_over_two_zones() -> None:
    """33 CPUs on zones of 32 under Restricted."""
    owner = node(cores=16, policy=RESTRICTED)
    assert by_zone(allocation(owner, share(33000))) == {0: 16500, 1: 16500}


def test_a_share_pod_is_refused_by_its_zones() -> None:
    """It requests 20 CPUs of zones of 15, or more memory than the largest zone has."""
    owner = node(cores=8, gib=62, policy=SINGLE, reserved_cpus=0b1 | 1 << 16)
    answer = refusal(owner, share(20000))
    assert (answer.reason, answer.resource, answer.best) == (Reason.NO_SINGLE_ZONE, "cpu", 15000)
    used = [held(zone, 1000, 40) for zone in (0, 1)]
    answer = refusal(owner, share(1000, 40), *used)
    assert (answer.resource, answer.asked, answer.best) == ("memory", 40 * GIB, 22 * GIB)
    assert [zone.free for zone in answer.zones] == [22 * GIB, 22 * GIB]


def test_best_effort_takes_all_zones_if_none_is_enough() -> None:
    owner = node(policy=BEST_EFFORT)
    assert by_zone(allocation(owner, share(12000, 4))) == {0: 6000, 1: 6000}
    assert refusal(owner, share(17000)).resource == "cpu"


def test_a_node_with_one_zone_records_it_and_names_no_mask() -> None:
    given_zone = allocation(node(zones=1, policy=SINGLE), share(2000, 1))
    assert (given_zone.mask, by_zone(given_zone)) == (None, {0: 2000})


def test_a_cpu_set_has_as_many_ids_in_each_zone_as_its_amount() -> None:
    """Zone 0 has no memory left, and the set of 6 over three zones is even."""
    owner = node(zones=3, policy=RESTRICTED)
    assert format_cpus(allocation(owner, cpu_set(2, 4), held(0, 0, 16)).holding.cpus) == "8-9"
    assert format_cpus(allocation(owner, cpu_set(6, 33)).holding.cpus) == "0-1,8-9,16-17"


def test_a_cpu_set_without_zones_lessens_the_cpus_of_its_zone() -> None:
    owner = node(policy=SINGLE)
    assert by_zone(allocation(owner, share(5000), Holding(0b1111))) == {1: 5000}
    assert refusal(owner, share(5000), Holding(0b1111), held(1, 4000)).resource == "cpu"


def test_a_node_without_policy_gives_a_set_of_any_zones_and_a_share_of_none() -> None:
    owner = node()
    assert format_cpus(allocation(owner, cpu_set(10)).holding.cpus) == "0-9"
    assert allocation(owner, share(1500)).holding == Holding()


def test_distribute_evenly_takes_equal_numbers_of_the_fewest_zones() -> None:
    owner = node(cpu_strategy="DistributeEvenly")
    assert format_cpus(allocation(owner, cpu_set(10)).holding.cpus) == "0-5,8-11"
    assert format_cpus(allocation(owner, cpu_set(8)).holding.cpus) == "0-7"


def test_a_machine_with_very_many_zones_is_decided_by_neighbouring_ones() -> None:
    owner = node(zones=40, cores=1, policy=RESTRICTED)
    used = [held(zone, 2000) for zone in range(40) if zone not in (7, 8, 9, 10, 11, 30)]
    assert list(by_zone(allocation(owner, share(10000), *used))) == [7, 8, 9, 10, 11]
    assert refusal(owner, share(13000), *used).best == 12000


@pytest.mark.parametrize(
    ("owner", "request_", "reason"),
    [
        (node(), share(1500, takes_cpu_set=True, bind="FullPCPUs"), refusals.NOT_WHOLE_CPUS),
        (node(forced_bind="FullPCPUs"), share(1500), refusals.NOT_WHOLE_CPUS),
        (node(forced_bind="FullPCPUs"), share(3000), Reason.SMT_ALIGNMENT),
        (node(cpus=None), cpu_set(2), refusals.NO_CPU_LAYOUT),
        (
            node(forced_bind="FullPCPUs"),
            cpu_set(2, bind="SpreadByPCPUs", bind_is_required=True),
            refusals.BIND_CONFLICT,
        ),
        (node(policy=RESTRICTED), share(1000, policy=SINGLE), Reason.POLICY_MISMATCH),
        (msgspec.structs.replace(node(policy=RESTRICTED), zones=()), share(1000), Reason.NO_ZONES),
        (node(), cpu_set(17), Reason.TOO_LITTLE_FREE),
        (
            node(),
            cpu_set(9, bind="SpreadByPCPUs", bind_is_required=True),
            Reason.TOO_LITTLE_FREE,
        ),
    ],
)
def test_a_refusal_names_its_reason(owner: OwnedNode, request_: OwnedRequest, reason: str) -> None:
    assert refusal(owner, request_).reason == reason


def test_pods_are_kept_apart_by_share_pods_too() -> None:
    """No pod with a policy gets a zone of a pod that shares CPUs of both zones."""
    owner = node(zones=3, policy="none")
    wide = Holding(zones=(ZoneAmounts(0, {"cpu": 100}), ZoneAmounts(1, {"cpu": 100})))
    assert by_zone(allocation(owner, share(1000, policy=SINGLE), wide)) == {2: 1000}
    anywhere = msgspec.structs.replace(wide, is_chosen=False)
    assert by_zone(allocation(owner, share(7950, policy=SINGLE), anywhere)) == {2: 7950}
    full = held(2, 8000)
    assert by_zone(allocation(owner, share(1000, policy=SINGLE), anywhere, full)) == {0: 1000}
    assert refusal(owner, share(1000, policy=SINGLE), wide, full).reason == Reason.NO_SINGLE_ZONE
    narrow = [held(zone, 1000) for zone in range(3)]
    answer = refusal(owner, share(10000, policy=RESTRICTED), *narrow)
    assert "zone 0 is single" in answer.subject
    assert by_zone(
        allocation(owner, share(10000, policy=RESTRICTED, zone_exclusive="Preferred"), *narrow)
    )


@settings(max_examples=150)
@given(nodes(), st.lists(requests(), max_size=5), requests(), st.integers(0, 3))
def test_one_zone_equals_the_merge_of_hints(
    owner: OwnedNode, running: list[OwnedRequest], request: OwnedRequest, first: int
) -> None:
    free = free_of(owner, placed(owner, running))
    policy, trial = combined_policy(owner.policy, request.policy), trial_of(owner, free, request)
    if policy is None or isinstance(trial, Refusal):
        return
    chosen, merged = one_zone(trial, policy), merged_hint(trial, policy)
    if chosen is not None:
        assert chosen == merged
    elif merged is not None and owner.preferred == "free" and merged.preferred:
        assert merged.mask is not None
        assert merged.mask.bit_count() > 1
    by_choice = one_zone(trial, policy, first)
    if by_choice is None or chosen is None:
        assert by_choice == chosen
    elif len(free.zones) > 1:
        fits_first = 1 << first in masks_that_fit(owner, free, request) and (
            exclusive_of(request) != "Required" or free.use[first] != "shared"
        )
        assert by_choice.mask == (1 << first if fits_first else chosen.mask)


@settings(max_examples=150)
@given(nodes(), st.lists(requests(), min_size=1, max_size=6))
def test_free_less_one_holding_is_what_all_holdings_leave(
    owner: OwnedNode, running: list[OwnedRequest]
) -> None:
    holdings = placed(owner, running)
    for count, holding in enumerate(holdings):
        assert less(free_of(owner, holdings[:count]), owner, holding) == free_of(
            owner, holdings[: count + 1]
        )


@settings(max_examples=200)
@given(
    st.integers(1, 2),
    st.integers(1, 2**16 - 1),
    st.integers(1, 16),
    st.sampled_from(["FullPCPUs", "SpreadByPCPUs"]),
    st.sampled_from(["", "PCPULevel"]),
)
def test_whole_cores_of_a_zone_are_taken_as_in_steps(
    threads: int, available: int, count: int, bind: str, exclusive: str
) -> None:
    nested = machine(2, 8 // threads, threads)
    request = CpuRequest(min(count, available.bit_count()), bind, exclusive)  # type: ignore[arg-type]
    for cpus in (available, available & nested.in_zone[0]):
        if request.count <= cpus.bit_count():
            chosen = choose_cpus(nested, cpus, request, HeldCpus())
            assert chosen == take_in_steps(nested, cpus, request, HeldCpus())
