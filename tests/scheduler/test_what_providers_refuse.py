"""A custom provider is named in a refusal if it is the reason, and only then: it is asked as the
kubelet asks it, under the node's policy and scope, container by container, alone and with the rest.
Seats are licences that no zone has to itself: one hint, of both zones at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.domain.report import Placement, Report
from shared.hints import registry
from shared.hints.provider import HintProvider, Observed, RequestedAmounts, Reusable
from shared.kubelet.hint import Hint, Hints
from tests.hints.licences import LICENCE, LicenceManager, Licences
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone

SEAT, BADGE = "example.com/seat", "example.com/badge"
LONELY = ("single-numa-node", "restricted")


class SeatManager(LicenceManager, frozen=True):
    """Gives seats, which belong to both zones, wherever the CPUs are."""

    def hints(self, state: int, reusable: Reusable, requested: RequestedAmounts) -> Hints:
        if not requested:
            return None
        return {SEAT: [Hint(0b11, True)] if state >= requested[0][1] else []}


class Seats(Licences, frozen=True):
    name: ClassVar[str] = "seats"

    def owns(self, resource: str) -> bool:
        return resource == SEAT

    def zones(self, report: Report, resource: str) -> frozenset[int] | None:
        return None

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        return Observed(
            SeatManager(), (sum(zone.resources[SEAT].available for zone in report.zones),)
        )


class BadgeManager(LicenceManager, frozen=True):
    def hints(self, state: int, reusable: Reusable, requested: RequestedAmounts) -> Hints:
        hints = super().hints(state, reusable, requested)
        return {BADGE: hints[LICENCE]} if hints else None


class Badges(Licences, frozen=True):
    """Gives licences of zone 0 under another name."""

    name: ClassVar[str] = "badges"

    def owns(self, resource: str) -> bool:
        return resource == BADGE

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        return Observed(
            BadgeManager(self.home),
            (sum(z.resources[BADGE].available for z in report.zones if z.id == self.home),),
        )


def use(monkeypatch: pytest.MonkeyPatch, *providers: HintProvider) -> None:
    monkeypatch.setattr(registry, "PROVIDERS", (*registry.PROVIDERS, *providers))


def world(
    policy: str, scope: str = "container", cpus: tuple[int, ...] = (8, 8), cards: int = 2
) -> World:
    new_world, special = World(), {LICENCE: cards, SEAT: cards, BADGE: cards}
    zones = [
        zone(at, amounts(cpu=free, memory=64, **special), amounts(cpu=8, memory=64, **special))
        for at, free in enumerate(cpus)
    ]
    new_world.observe(
        "n",
        allocatable={
            "cpu": 64_000,
            "memory": 1 << 40,
            "pods": 110,
            LICENCE: 99,
            SEAT: 99,
            BADGE: 99,
        },
    )
    new_world.report(report("n", zones, policy, scope, tracked=("cpu", "memory", *special)))
    return new_world


def asking(*parts: Mapping[str, int]) -> Pod:
    return guaranteed(
        "p", *[container(f"c{at}", amounts(memory=1, **each)) for at, each in enumerate(parts)]
    )


def refusal(world: World, pod: Pod) -> Refusal:
    refused = world.cluster.verdict(pod, "n")
    assert refused is not None
    return refused


@pytest.mark.parametrize("policy", ["best-effort", "none"])
def test_a_provider_without_a_single_zone_is_not_blamed_for_refusals_of_others(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Seats are given over both zones; of licences the first container takes what only the second
    needs.
    """
    use(monkeypatch, Seats(), Licences())
    judged = world(policy)
    assert isinstance(judged.cluster.place(asking({"cpu": 2, SEAT: 3})), Placed)
    refused = refusal(judged, asking({"cpu": 2, SEAT: 3, LICENCE: 1}, {"cpu": 2, LICENCE: 2}))
    assert (refused.resource, refused.container) == (LICENCE, "c1")


def test_restricted_does_not_take_as_many_zones_for_seats_and_fewer_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, Seats())
    refused = refusal(world("restricted"), asking({"cpu": 2, SEAT: 3}))
    assert (refused.resource, refused.subject) == (
        SEAT,
        "that seats offers, together with the other resources",
    )


def test_under_single_numa_node_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Seats())
    refused = refusal(world("single-numa-node"), asking({"cpu": 2, SEAT: 1}))
    assert (refused.reason, refused.resource, refused.container) == (
        Reason.NO_SINGLE_ZONE,
        SEAT,
        "c0",
    )


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort", "none"])
def test_what_the_first_container_leaves_is_too_little_for_the_second(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    use(monkeypatch, Licences())
    refused = refusal(world(policy), asking({"cpu": 1, LICENCE: 1}, {"cpu": 1, LICENCE: 2}))
    assert (refused.resource, refused.container, refused.asked) == (LICENCE, "c1", 2)
    assert refused.subject == "that licences offers"
    assert refused.remedy.startswith("wait until licences has some")
    assert refused.reason is (
        Reason.NO_SINGLE_ZONE if policy == "single-numa-node" else Reason.NO_ZONE_SET
    )


@pytest.mark.parametrize("policy", LONELY)
def test_scope_pod_asks_for_all_at_once(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    use(monkeypatch, Licences())
    refused = refusal(world(policy, "pod"), asking({"cpu": 1, LICENCE: 1}, {"cpu": 1, LICENCE: 2}))
    assert (refused.resource, refused.container, refused.asked) == (LICENCE, "", 3)


@pytest.mark.parametrize("policy", LONELY)
def test_two_that_have_some_in_different_zones_now(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    use(monkeypatch, Licences(home=1, open=True), Badges(home=0, open=True))
    for alone in (LICENCE, BADGE):
        assert isinstance(world(policy).cluster.place(asking({"cpu": 1, alone: 1})), Placed)
    refused = refusal(world(policy), asking({"cpu": 1}, {"cpu": 1, LICENCE: 1, BADGE: 1}))
    assert (refused.resource, refused.container) == (BADGE, "c1")
    assert refused.subject == "that badges offers, together with the other resources"


@pytest.mark.parametrize("cpus", [2, 16])
def test_two_that_ever_have_some_in_different_zones_only(
    monkeypatch: pytest.MonkeyPatch, cpus: int
) -> None:
    """This also holds if the node as a whole lacks CPUs now, because no zone lacks CPUs when it is
    empty.
    """
    use(monkeypatch, Licences(home=1), Badges(home=0))
    judged = world("single-numa-node")
    judged.observe(
        "n", allocatable={"cpu": 16_000, "memory": 1 << 40, "pods": 110, LICENCE: 99, BADGE: 99}
    )
    judged.bound(guaranteed("q", container("c", amounts(cpu=cpus - 1, memory=1))), "n")
    refused = refusal(judged, asking({"cpu": 2, LICENCE: 1, BADGE: 1}))
    assert (refused.reason, refused.resource, refused.subject) == (
        Reason.NEVER_ALIGNED,
        BADGE,
        "together with the other resources",
    )
    assert "nodes with a zone that has all of them" in refused.remedy


@pytest.mark.parametrize("cpus", [2, 16])
def test_a_provider_without_hints_on_this_node_is_named(
    monkeypatch: pytest.MonkeyPatch, cpus: int
) -> None:
    use(monkeypatch, Licences(home=5))
    judged = world("single-numa-node")
    judged.observe("n", allocatable={"cpu": 16_000, "memory": 1 << 40, "pods": 110, LICENCE: 99})
    judged.bound(guaranteed("q", container("c", amounts(cpu=cpus - 1, memory=1))), "n")
    refused = refusal(judged, asking({"cpu": 2, LICENCE: 1}))
    assert (refused.reason, refused.resource, refused.subject) == (
        Reason.NEVER_ALIGNED,
        LICENCE,
        "",
    )
    assert refused.remedy == f"use nodes whose zones have {LICENCE}"


@pytest.mark.parametrize("policy", LONELY)
def test_where_it_offers_some_the_rest_does_not_fit_once_the_first_container_is_there(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """The first container takes zone 0, the lowest with room, and leaves too few CPUs there. With
    `open` the provider gives no hints ahead.
    """
    use(monkeypatch, Licences(home=0, open=True))
    refused = refusal(world(policy), asking({"cpu": 5}, {"cpu": 5, LICENCE: 1}))
    assert (refused.resource, refused.container) == (LICENCE, "c1")
    assert isinstance(world(policy).cluster.place(asking({"cpu": 5}, {"cpu": 5})), Placed)


def test_amounts_that_no_zone_has_when_empty_are_named_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, Licences())
    refused = refusal(world("single-numa-node"), asking({"cpu": 9, LICENCE: 3}))
    assert (refused.reason, refused.resource) == (Reason.NEVER_ALIGNED, "cpu")
