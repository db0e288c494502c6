"""Defects of the filter: pods that it passes or rejects, against a kubelet's answer for the same
pod.
"""

from __future__ import annotations

from plugins.upstream_compat.cache import View
from plugins.upstream_compat.filter import Code, Verdict, filter_node
from plugins.upstream_compat.node import offered
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import Pod
from services.scheduler.reserve.dirty_marks import DirtyMarks
from services.scheduler.score.strategies.least_numa_nodes import score_containers
from services.scheduler.score.strategies.registry import STRATEGIES
from services.scheduler.score.strategies.strategy import ZoneView
from shared.domain.demand import peak, zonal_demand
from shared.domain.pod import Pod as DomainPod
from shared.domain.refusal import Reason
from shared.domain.resources import Amounts
from tests.ledger.given import History
from tests.ledger.given import container as part
from tests.ledger.given import pod as made
from tests.ledger.given import zone as given_zone
from tests.scheduler.compat.build import container, guaranteed, nrt, pod, two_zones, zone
from tests.scheduler.cycle_worlds import World, amounts
from tests.scheduler.cycle_worlds import container as world_part
from tests.scheduler.cycle_worlds import guaranteed as world_pod
from tests.scheduler.cycle_worlds import zone as room
from tests.scheduler.defects.upstream import Upstream


def verdict(tested: Pod, node: Nrt) -> Verdict:
    return filter_node(tested, offered(["vendor.example/gpu"]), View(node))


def whole(requests: Amounts) -> DomainPod:
    """A Guaranteed pod of one container, for the default cycle."""
    return world_pod("p", world_part("c", requests))


class TestSidecars:
    """A restartable init container is tested like an init container and leaves no trace, although
    it runs next to the app containers; in pod scope it is maxed with them instead of added. Both
    admit pods that the kubelet rejects.
    """

    def test_upstream_admits_a_sidecar_and_an_app_container_that_need_the_same_cpus(self) -> None:
        sidecar = {**container("s", cpu="6", memory="1Gi"), "restartPolicy": "Always"}
        both = pod("p", container(cpu="6", memory="1Gi"), inits=(sidecar,))
        for scope in ("container", "pod"):
            assert verdict(both, nrt(zone(0, cpu="8", memory="8Gi"), scope=scope)).passes

    def test_default_adds_sidecars_to_the_app_containers(self) -> None:
        both = made("p", part("s", 6, kind="sidecar"), part("c", 6))
        assert peak(zonal_demand(both, ("cpu",))) == {"cpu": 12_000}
        view = [ZoneView(0, {"cpu": 8000}, {"cpu": 8000})]
        assert score_containers(STRATEGIES["LeastNUMANodes"], both.containers, view, {}, {}, 8) == 0


class TestPodLevelResources:
    """spec.resources decides the class of service and nothing else: the containers' own requests,
    or none, are aligned. A kubelet gives a pod with pod-level resources no exclusive CPUs at all
    (1.36, default gates)."""

    def test_upstream_aligns_cpus_that_the_kubelet_would_not_pin(self) -> None:
        both = {"cpu": "12", "memory": "1Gi"}
        level = pod(
            "p", container(cpu="12", memory="1Gi"), resources={"limits": both, "requests": both}
        )
        assert verdict(level, nrt(*two_zones())).message == "cannot align container"

    def test_default_demands_nothing_exclusive_for_them(self) -> None:
        level = made("p", part("c", 12), pod_level={"cpu": 12_000, "memory": 2**30})
        assert zonal_demand(level, ("cpu", "memory")) == ()


class TestCpuFractions:
    """A Guaranteed pod with a fraction of a CPU is compared against the zones; the static CPU
    Manager leaves it in the shared pool."""

    def test_upstream_refuses_shared_cpu_that_no_zone_has_alone(self) -> None:
        assert not verdict(guaranteed(cpu="8500m"), nrt(*two_zones())).passes

    def test_default_demands_only_whole_cpus_of_zones(self) -> None:
        fraction = made("p", part("c"))
        assert zonal_demand(fraction, ("cpu",)) == ()


class TestOtherPoliciesPass:
    """Only single-numa-node filters: a restricted node takes any pod and its kubelet rejects it
    (scheduler-plugins#885)."""

    def test_upstream_passes_a_restricted_node_without_looking(self) -> None:
        for policy in ("restricted", "best-effort", "none"):
            assert verdict(guaranteed(cpu="1000"), nrt(*two_zones(), policy=policy)).passes

    def test_default_refuses_a_restricted_node_that_cannot_align_the_pod(self) -> None:
        world = World()
        world.node("n", *(room(at, amounts(8), amounts(16)) for at in (0, 1)), policy="restricted")
        refused = world.cluster.verdict(whole(amounts(12)), "n")
        assert refused is not None
        assert refused.policy == "restricted"


class TestOneRefusalIsEnough:
    """The reserve-plugin design asks for N refusals in a row before a node is dirty; the code marks
    it at the first, whatever the pod asked for: one pod that fits nowhere makes every node dirty
    and costs one live GET each."""

    def test_upstream_marks_every_node_for_one_absurd_pod(self) -> None:
        story = Upstream(*(nrt(*two_zones(), name=name) for name in ("n1", "n2", "n3")))
        for name in story.api:
            answer = filter_node(
                guaranteed(cpu="1000"), offered([]), story.cache.view(name, story.api.get)
            )
            assert answer.marks
            story.cache.node_maybe_overreserved(name)
        assert story.dirty.maybe_overreserved == ("n1", "n2", "n3")

    def test_default_marks_a_node_after_n_refusals_in_a_row(self) -> None:
        history = History()
        history.report(given_zone(0, 8), placements=None)
        history.reserve(made("a", cpus=6))
        marks = DirtyMarks(dirty_after=3)
        for _ in range(2):
            marks.rejected(history.ledger, ["n1"])
        marks.accepted("n1")
        for _ in range(2):
            marks.rejected(history.ledger, ["n1"])
        assert marks.proposals(history.ledger, (), {}) == []
        marks.rejected(history.ledger, ["n1"])
        assert [proposal.node for proposal in marks.proposals(history.ledger, (), {})] == ["n1"]

    def test_default_does_not_mark_a_node_that_carries_no_pod(self) -> None:
        history = History()
        history.report(given_zone(0, 8), placements=None)
        marks = DirtyMarks(dirty_after=1)
        marks.rejected(history.ledger, ["n1"])
        assert marks.proposals(history.ledger, (), {}) == []


class TestTwoZonesWithOneName:
    """Zones that share an id are tested one by one but charged together: the second may not have
    what the first was tested for, and Filter ends in an Error instead of a refusal."""

    def test_upstream_answers_with_an_error_status(self) -> None:
        doubled = nrt(zone(0, cpu="8", memory="8Gi"), zone(0, cpu="2", memory="8Gi"))
        answer = verdict(guaranteed(cpu="4"), doubled)
        assert answer.code == Code.ERROR
        assert answer.reasons == (
            "inconsistent resource accounting",
            'resource "cpu" request 4 exceeds NUMA 0 availability 2',
        )

    def test_default_refuses_the_report_and_names_the_zone(self) -> None:
        world = World()
        world.node("n", room(0, amounts(8)), room(0, amounts(2)))
        refused = world.cluster.verdict(whole(amounts(2)), "n")
        assert refused is not None
        assert (refused.reason, refused.subject) == (
            Reason.REPORT_MALFORMED,
            "zone 0 is reported twice",
        )


class TestNothingIsExplained:
    """The status names neither resource nor zone nor shortfall, so that all refusals of a scope
    read alike.
    """

    def test_upstream_says_the_same_for_cpu_memory_and_devices(self) -> None:
        node = nrt(*two_zones(DEVICE="1"))
        wants = (
            guaranteed(cpu="9"),
            guaranteed(memory="99Gi"),
            pod("p", container(cpu="1", memory="1Gi", DEVICE="2")),
        )
        assert {verdict(each, node).message for each in wants} == {"cannot align container"}

    def test_default_names_resource_zone_and_shortfall(self) -> None:
        world = World()
        world.node(
            "n", room(0, amounts(4, 8), amounts(16, 8)), room(1, amounts(6, 8), amounts(16, 8))
        )
        refused = world.cluster.verdict(whole(amounts(8, 6)), "n")
        assert refused is not None
        assert (refused.resource, refused.asked, refused.best, refused.best_zone) == (
            "cpu",
            8000,
            6000,
            1,
        )
        assert refused.remedy == (
            "request at most 6 cpu in container c; otherwise necessary: 2 more free cpu in zone 1"
        )
