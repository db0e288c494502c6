"""Defects of identity, of process-wide state and of memory: R10, R12, R13, R14, restart and
fail-over.
"""

from __future__ import annotations

from itertools import permutations

import msgspec

from plugins.upstream_compat.arguments import Arguments
from plugins.upstream_compat.cache import View
from plugins.upstream_compat.foreign import Profiles
from plugins.upstream_compat.node import offered
from plugins.upstream_compat.plugin import Plugin
from plugins.upstream_compat.score import ZONE_STRATEGIES, score_node
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.state.state import SchedulerState, dump, load
from shared.domain.refusal import Reason
from shared.domain.state_hash import state_hash
from tests.ledger.given import History, held, pod, zone
from tests.scheduler.compat import build
from tests.scheduler.compat.build import container, guaranteed, nrt, reported, two_zones
from tests.scheduler.cycle_worlds import World, amounts
from tests.scheduler.cycle_worlds import container as world_part
from tests.scheduler.cycle_worlds import guaranteed as world_pod
from tests.scheduler.defects.upstream import Upstream


class TestR10TwoProfiles:
    """The known scheduler names and the detection mode are globals of the process, the caches are
    not: a pod of the other profile is "known", so that it is not foreign, and its reservation is in
    the other cache. The last profile decides the mode for all."""

    def test_upstream_gives_the_same_cpus_to_two_profiles(self) -> None:
        profiles, object_ = Profiles(), nrt(*two_zones())
        resync = Arguments(cache_resync_period_s=5)
        first_plugin, two = (Plugin(name, resync, [object_], profiles) for name in ("one", "two"))
        first = guaranteed("a", cpu="6", scheduler="one")
        first_plugin.reserve(first, "n1")
        two.cache.pod_event(msgspec.structs.replace(first, node_name="n1"))
        assert two.filter(
            guaranteed("b", cpu="6", scheduler="two"), "n1", offered([]), lambda _: None
        ).passes

    def test_upstream_lets_the_last_profile_decide_which_pods_are_foreign_for_all(self) -> None:
        profiles = Profiles(["one"], "All")
        story = Upstream(nrt(*two_zones()), detection="All", profiles=profiles)
        profiles.register(["two"], "OnlyExclusiveResources")
        story.cache.pod_event(
            build.pod("agent", {"name": "c"}, node="n1", scheduler="default-scheduler")
        )
        assert story.free() == 8

    def test_default_has_one_ledger_for_pods_of_any_scheduler(self) -> None:
        history = History()
        history.report(zone(0, 8))
        for name in ("one", "two"):
            history.reserve(msgspec.structs.replace(pod(name, cpus=3), scheduler_name=name))
        assert history.free(0) == 2


class TestR12FailOpen:
    """Passthrough and DiscardReserved take a failed GET (an error, missing rights) for "this node
    has no topology", and Filter passes."""

    def test_upstream_passes_every_node_while_the_api_refuses_to_answer(self) -> None:
        for arguments in (Arguments(), Arguments(discard_reserved_nodes=True)):
            plugin = Plugin("topo", arguments, [], Profiles())
            verdict = plugin.filter(guaranteed(cpu="1000"), "n1", offered([]), lambda _: None)
            assert verdict.passes
            assert not verdict.marks

    def test_default_refuses_a_node_without_report_and_says_so(self) -> None:
        world = World()
        world.observe("n1")
        refused = world.cluster.verdict(world_pod("p", world_part("c", amounts(4))), "n1")
        assert refused is not None
        assert refused.reason is Reason.NO_REPORT

    def test_default_passes_it_only_where_the_operator_chose_that(self) -> None:
        world = World(CycleConfig(on_missing_report="pass"))
        world.observe("n1")
        assert world.cluster.verdict(world_pod("p", world_part("c", amounts(4))), "n1") is None


class TestR13SameNameAgain:
    """The fingerprint knows names only. A StatefulSet's pod, deleted and created again with another
    spec, looks like its predecessor: the old report "matches" and the new reservation is dropped.
    """

    def test_upstream_takes_the_predecessors_report_for_the_newcomers(self) -> None:
        old = guaranteed("web-0", cpu="1", node="n1", phase="Running")
        story = Upstream(reported(*two_zones(cpu="7"), pods=(old,)))
        new = guaranteed("web-0", cpu="6", node="n1", phase="Running")
        story.cache.reserve("n1", new)
        story.lister = [new]
        assert story.free() == 1
        story.resync()
        assert story.free() == 7

    def test_default_proves_nothing_by_a_name_that_another_uid_carried(self) -> None:
        history = History()
        old, new = pod("web-0", cpus=6), pod("web-0", cpus=6, uid="uid-new")
        history.reserve(old)
        history.report(zone(0, 8, 2), zone(1, 8), at=1, placements=(held("web-0", 0, 6),))
        history.end(old)
        history.reserve(new)
        history.report(zone(0, 8, 2), zone(1, 8), at=2, placements=(held("web-0", 0, 6),))
        assert not history.charge(new).confirmed
        assert history.free(1) == 2


class TestR14SharedSlices:
    """Appending app containers to the init containers may write into the pod's own memory, shared
    by the workers that score nodes in parallel; adding to a quantity may change the pod likewise.
    Values that cannot change cannot show it, in compat mode either: scoring any nodes in any order
    leaves the pod and every score as they were."""

    def test_neither_mode_changes_a_pod_by_scoring_it(self) -> None:
        tested = build.pod(
            "p",
            container("c1", cpu="2", memory="1Gi"),
            inits=(container("i", cpu="1", memory="1.5Gi"),),
        )
        pod_before = msgspec.json.encode(tested)
        views = [
            View(nrt(*two_zones(cpu=cpu), scope=scope))
            for cpu, scope in (("8", "pod"), ("3", "container"), ("48", "pod"))
        ]
        for strategy in (*ZONE_STRATEGIES, "LeastNUMANodes"):
            scores = {id(view): score_node(tested, view, strategy, {}) for view in views}
            for order in permutations(views):
                assert [score_node(tested, view, strategy, {}) for view in order] == [
                    scores[id(view)] for view in order
                ]
        assert msgspec.json.encode(tested) == pod_before


class TestRestartAndFailOver:
    """All state is the memory of one process. After a restart, and on a standby with a list of
    objects as old as its process, reservations of pods that no report shows yet are gone.
    """

    def test_upstream_forgets_every_reservation_and_mark_at_a_restart(self) -> None:
        story = Upstream(nrt(*two_zones()))
        story.cache.reserve("n1", guaranteed("a", cpu="6"))
        story.cache.node_maybe_overreserved("n1")
        restarted = Upstream(*story.api.values())
        assert restarted.free() == 8
        assert restarted.dirty.maybe_overreserved == ()

    def test_upstream_stand_by_takes_over_with_the_objects_of_its_own_start(self) -> None:
        stand_by = Upstream(nrt(*two_zones()))
        stand_by.published(nrt(*two_zones(cpu="1")))
        stand_by.cache.resync(stand_by.api.get, stand_by.lister)
        assert stand_by.free() == 8

    def test_default_recovers_its_state(self) -> None:
        history = History()
        history.report(zone(0, 8))
        history.reserve(pod("a", cpus=6))
        restored = load(dump(SchedulerState(history.ledger))).ledger
        assert state_hash(restored) == state_hash(history.ledger)
        assert restored.nodes["n1"].free_min == history.n1.free_min
