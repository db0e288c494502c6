"""Every refusal says what would make the pod fit, and names amounts and zones that exist: whatever
the reason and the node.
"""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.explain.wording import headline
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Unplaceable
from services.scheduler.snapshot.topology_policy import POD_ANNOTATION
from shared.domain.pod import Constraints, Pod
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import Amounts
from shared.events.cluster_events import Taint
from shared.kubelet.layout import layout_of
from tests.fixtures.examples import examples
from tests.kubelet.machines import regular_cpus
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone

ROOM = zone(0, amounts(8, 8))
SMALL = guaranteed("p", container("c", amounts(1, 1)))


def world(**fields: object) -> World:
    made = World()
    made.node("n", ROOM, **fields)  # type: ignore[arg-type]
    return made


def only(constraints: Constraints) -> Pod:
    return msgspec.structs.replace(SMALL, constraints=constraints)


def missing_report() -> World:
    made = World()
    made.observe("n")
    return made


def unconfirmed(more: int = 0) -> World:
    """Zone 0: 8 cpu and a GPU, zone 1: 14 cpu; a pod of 6 cpu is a pending admission, and so is a
    pod with `more`.
    """
    made = World()
    made.node("n", zone(0, amounts(8, gpu=1)), zone(1, amounts(14), amounts(14, gpu=1)))
    made.bound(guaranteed("a", container("c", amounts(6))), "n")
    if more:
        made.bound(guaranteed("b", container("c", amounts(more))), "n")
    return made


def restricted() -> World:
    made = World()
    made.node(
        "n", zone(0, amounts(2), amounts(8)), zone(1, amounts(2), amounts(8)), policy="restricted"
    )
    return made


def spread() -> World:
    made = World()
    made.node("n", zone(0, amounts(2), amounts(8)), zone(1, amounts(2), amounts(8)), policy="none")
    return made


BIG = guaranteed("p", container("c", amounts(12)))
TWO = guaranteed("p", container("c1", amounts(7)), container("c2", amounts(2, gpu=1)))
CORES = " (undecided: full cores or sockets)"
WISH = msgspec.structs.replace(
    SMALL, annotations={POD_ANNOTATION: '{"numaTopologyPolicy": "Restricted"}'}
)

CASES = [
    (Reason.INVALID_POD, world(), guaranteed("p", container("c", {"cpu": -1}))),
    (Reason.UNSUPPORTED, world(), only(Constraints(unsupported=("spec.resourceClaims",)))),
    (Reason.NODE_NAME, world(), only(Constraints(node_name="other"))),
    (Reason.NODE_SELECTOR, world(), only(Constraints(node_selector={"a": "b"}))),
    (Reason.UNSCHEDULABLE, world(unschedulable=True), SMALL),
    (Reason.NOT_READY, world(ready=False), SMALL),
    (Reason.TAINT, world(taints=(Taint("k", "v", "NoSchedule"),)), SMALL),
    (
        Reason.NODE_RESOURCE,
        world(allocatable=amounts(1, 8, pods=10)),
        guaranteed("p", container("c", amounts(2))),
    ),
    (Reason.TOO_MANY_PODS, world(allocatable=amounts(8, 8, pods=0) | {"pods": 0}), SMALL),
    (Reason.NO_REPORT, missing_report(), SMALL),
    (Reason.REPORT_MALFORMED, world(policy="none"), SMALL),
    (Reason.POLICY_UNKNOWN, world(policy="sometimes"), SMALL),
    (Reason.POLICY_MISMATCH, world(), WISH),
    (Reason.NO_ZONES, world(), SMALL),
    (Reason.NEVER_ALIGNED, world(), BIG),
    (Reason.NO_SINGLE_ZONE, unconfirmed(3), guaranteed("p", container("c", amounts(14)))),
    (Reason.NO_ZONE_SET, restricted(), BIG),
    (Reason.TOO_LITTLE_FREE, spread(), BIG),
    (Reason.SMT_ALIGNMENT, world(options={"full-pcpus-only": "true"}), SMALL),
    (Reason.NOT_ON_EVERY_BRANCH, unconfirmed(), TWO),
]
CASES[10][1].node("n", ROOM, ROOM)
CASES[13][1].node("n")


def test_zones_are_shown_with_what_they_have_alone() -> None:
    """The node has too little of both resources. A resource that no zone lists is not shown by
    zone.
    """
    made = world(allocatable={"cpu": 500, "memory": 1 << 40, "pods": 10, "ephemeral-storage": 1})
    shown = {}
    for name in ("cpu", "ephemeral-storage"):
        asked = container("c", {"cpu": 1000, "memory": 1 << 30} if name == "cpu" else {name: 2})
        refusal = made.cluster.verdict(guaranteed("p", asked), "n")
        assert refusal is not None
        assert (refusal.reason, refusal.resource) == (Reason.NODE_RESOURCE, name)
        shown[name] = [each.zone for each in refusal.zones]
    assert shown == {"cpu": [0], "ephemeral-storage": []}


@pytest.mark.parametrize(
    ("reason", "made", "pod"), CASES, ids=[str(reason) for reason, _, _ in CASES]
)
def test_each_reason_comes_with_a_remedy_in_the_verdict_and_in_the_detail(
    reason: Reason, made: World, pod: Pod
) -> None:
    verdict = made.cluster.verdict(pod, "n")
    assert verdict is not None
    assert verdict.reason is reason
    assert verdict.remedy
    refused = made.cluster.place(pod)
    assert isinstance(refused, Unplaceable)
    assert refused.detail[0]["remedy"] == verdict.remedy


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        (
            amounts(6, 1),
            "request at most 2 cpu in container c; otherwise necessary: "
            "4 more free cpu on the node",
        ),
        (amounts(9, 1), "request at most 2 cpu in container c, or use larger nodes"),
        (amounts(1, 1) | {"vendor.com/none": 1}, "use nodes that offer vendor.com/none"),
    ],
)
def test_a_shortage_of_the_whole_node_is_shown_with_what_could_help(
    asked: Amounts, remedy: str
) -> None:
    made = world(allocatable=amounts(8, 8, pods=10))
    made.bound(guaranteed("other", container("c", amounts(6))), "n")
    verdict = made.cluster.verdict(guaranteed("p", container("c", asked)), "n")
    assert verdict is not None
    assert verdict.remedy == remedy


@pytest.mark.parametrize(
    ("asked", "reason", "remedy"),
    [
        (7, Reason.NODE_RESOURCE, "necessary: 3 more free cpu on the node"),
        (12, Reason.NEVER_ALIGNED, "use nodes with larger zones"),
        (17, Reason.NODE_RESOURCE, "use larger nodes"),
    ],
)
def test_a_request_larger_than_any_zone_is_shown_before_current_use(
    asked: int, reason: Reason, remedy: str
) -> None:
    """The end of other pods would not help it, although 12 CPUs of two zones of 8 are in use."""
    made = World()
    made.node("n", zone(0, amounts(8)), zone(1, amounts(8)), allocatable=amounts(16, 16, pods=10))
    for name in "ab":
        made.bound(guaranteed(name, container("c", amounts(6))), "n")
    verdict = made.cluster.verdict(guaranteed("p", container("c", amounts(asked))), "n")
    assert verdict is not None
    assert (verdict.reason, verdict.remedy.partition(";")[0]) == (reason, remedy)


@pytest.mark.parametrize(
    ("threads", "setting", "asked", "reason", "remedy"),
    [
        (
            1,
            2,
            3,
            Reason.NO_SINGLE_ZONE,
            "request at most 2 cpu in container c; otherwise necessary: 1 more free cpu in zone 0",
        ),
        (
            4,
            2,
            2,
            Reason.SMT_ALIGNMENT,
            "necessary: a multiple of 4 CPUs, because the kubelet runs with full-pcpus-only",
        ),
        (
            0,
            2,
            1,
            Reason.SMT_ALIGNMENT,
            f"necessary: a multiple of 2 CPUs, because the kubelet runs "
            f"with full-pcpus-only{CORES}",
        ),
        (
            0,
            4,
            2,
            Reason.SMT_ALIGNMENT,
            f"necessary: a multiple of 4 CPUs, because the kubelet runs "
            f"with full-pcpus-only{CORES}",
        ),
    ],
)
def test_threads_of_a_core_are_those_of_the_report_and_else_of_the_setting(
    threads: int, setting: int, asked: int, reason: Reason, remedy: str
) -> None:
    """The node has 8 CPUs with this many threads per core (0: a report without its layout), of
    which 2 are free.
    """
    made = World(CycleConfig(threads_per_core=setting))
    made.observe("n")
    cpus = layout_of(regular_cpus(1, 1, 8 // threads, threads)) if threads else None
    full_pcpus = {"full-pcpus-only": "true"}
    made.report(
        msgspec.structs.replace(
            report("n", (zone(0, amounts(2), amounts(8)),), options=full_pcpus), cpus=cpus
        )
    )
    verdict = made.cluster.verdict(guaranteed("p", container("c", amounts(asked))), "n")
    assert verdict is not None
    assert (verdict.reason, verdict.remedy) == (reason, remedy)


def test_an_overcommitted_node_has_nothing_rather_than_less() -> None:
    made = world(allocatable=amounts(8, 8, pods=10))
    for name in "ab":
        made.bound(guaranteed(name, container("c", amounts(6))), "n")
    verdict = made.cluster.verdict(SMALL, "n")
    assert verdict is not None
    assert (verdict.best, verdict.remedy) == (0, "necessary: 5 more free cpu on the node")


FREE = st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 2))
ZONES = st.dictionaries(st.sampled_from([0, 1, 3, 7, 63, 200]), FREE, min_size=1, max_size=4)
POLICIES = ["single-numa-node", "restricted", "best-effort", "none"]
ASKED = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 3))


@settings(max_examples=examples(200), deadline=None)
@given(
    ZONES,
    st.lists(ASKED, min_size=1, max_size=2),
    st.sampled_from(POLICIES),
    st.sampled_from([0, 2]),
)
def test_a_refusal_names_zones_of_the_node_and_amounts_from_zero(
    zones: dict[int, tuple[int, int, int]],
    asked: list[tuple[int, int, int]],
    policy: str,
    gpus: int,
) -> None:
    """`gpus` in each zone; with none, no zone lists them though the node does."""
    made = World()
    parts = [
        zone(at, amounts(cpus, memory, min(gpus, held)), amounts(8, 8, gpus))
        for at, (cpus, memory, held) in zones.items()
    ]
    made.node("n", *parts, policy=policy)
    pod = guaranteed("p", *(container(f"c{at}", amounts(*each)) for at, each in enumerate(asked)))
    verdict = made.cluster.verdict(pod, "n")
    if verdict is None:
        return
    assert verdict.best_zone is None or verdict.best_zone in zones
    assert verdict.best >= 0
    assert {each.zone for each in verdict.zones} <= set(zones)
    assert verdict.remedy
    assert msgspec.convert(msgspec.to_builtins(verdict), Refusal) == verdict


SIZE = amounts(cpu=8, memory=16)


def wide_refusal(*free: Amounts, **asked: int) -> Refusal:
    """Return the refusal of a restricted node with equal zones. The container requests more than
    one zone has."""
    world = World()
    world.node("n", *[zone(at, each, SIZE) for at, each in enumerate(free)], policy="restricted")
    refusal = world.cluster.verdict(guaranteed("p", container("c", amounts(**asked))), "n")
    assert refusal is not None
    return refusal


def test_restricted_over_several_zones_shows_the_shortage_of_the_fewest_zones() -> None:
    refusal = wide_refusal(amounts(cpu=3, memory=16), amounts(cpu=3, memory=16), cpu=10, memory=20)
    assert (refusal.reason, refusal.resource, refusal.best, refusal.best_zone) == (
        Reason.NO_ZONE_SET,
        "cpu",
        6000,
        None,
    )
    assert refusal.remedy == "necessary: 4 more free cpu in zones 0, 1 together", (
        "whichever CPUs are free"
    )


def test_the_zones_are_as_many_as_by_capacity_though_more_are_free() -> None:
    """Three zones together have enough free. Two empty zones would be enough, so only sets of two
    count."""
    three = [amounts(cpu=4, memory=16), amounts(cpu=5, memory=16), amounts(cpu=4, memory=16)]
    refusal = wide_refusal(*three, cpu=10, memory=20)
    assert (refusal.resource, refusal.best) == ("cpu", 9000)
    assert refusal.remedy == (
        "request at most 9 cpu in container c; otherwise necessary: "
        "1 more free cpu in zones 0, 1 together"
    ), "whichever CPUs are free"


def test_a_resource_that_suffices_over_several_zones_is_not_called_short() -> None:
    refusal = wide_refusal(amounts(cpu=8, memory=2), amounts(cpu=8, memory=4), cpu=10, memory=20)
    assert (refusal.resource, refusal.remedy) == (
        "memory",
        "necessary: 14Gi more free memory in zones 0, 1 together",
    )


def test_resources_that_prefer_unlike_many_zones_are_never_aligned() -> None:
    """10 CPUs take two zones, 8 GiB one: the kubelet's hints never agree."""
    refusal = wide_refusal(SIZE, SIZE, cpu=10, memory=8)
    assert refusal.reason is Reason.NEVER_ALIGNED
    assert refusal.remedy == (
        "request at most 8 cpu in container c; otherwise necessary: "
        "amounts that fit the same number of empty zones (now: cpu 2, memory 1)"
    )
    assert (
        headline(refusal)
        == "node(s) had no set of NUMA zones with 10 cpu that all resources prefer"
    )


def test_a_request_larger_than_all_zones_is_shown_as_too_much() -> None:
    refusal = wide_refusal(SIZE, SIZE, cpu=20, memory=20)
    assert (refusal.reason, headline(refusal)) == (
        Reason.NEVER_ALIGNED,
        "node(s) had no set of NUMA zones with 20 cpu when empty",
    )
    assert refusal.remedy == "request at most 16 cpu in container c, or use nodes with larger zones"


def applied(remedy: str, asked: Amounts) -> Amounts:
    """Return the request after the change that the remedy names."""
    match = re.match(r"request at most (\d+) cpu in container c", remedy)
    assert match is not None, remedy
    return {**asked, "cpu": int(match[1]) * 1000}


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort", "none"])
@pytest.mark.parametrize("zones", [(15, 15), (15, 3), (8, 8, 8, 8)])
@pytest.mark.parametrize("cpus", [40, 31, 16])
def test_a_smaller_request_that_is_advised_fits(
    policy: str, zones: tuple[int, ...], cpus: int
) -> None:
    """A 40-CPU container on zones of 15 was advised to ask for 30, then 15."""
    made = World()
    allocatable = amounts(sum(zones), 64, pods=10)
    parts = [zone(index, amounts(size, 16)) for index, size in enumerate(zones)]
    made.node("n", *parts, policy=policy, allocatable=allocatable)
    asked = amounts(cpus, 1)
    verdict = made.cluster.verdict(guaranteed("p", container("c", asked)), "n")
    if verdict is None:
        return
    smaller = guaranteed("p", container("c", applied(verdict.remedy, asked)))
    assert made.cluster.verdict(smaller, "n") is None
    larger = {**asked, "cpu": applied(verdict.remedy, asked)["cpu"] + 1000}
    assert made.cluster.verdict(guaranteed("p", container("c", larger)), "n") is not None
