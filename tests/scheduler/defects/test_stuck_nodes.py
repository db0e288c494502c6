"""Defects by which a node stays dirty, unusable or out of date for ever: R6 to R9, R11, and the
exclusive-resource mismatch."""

from __future__ import annotations

import msgspec
import pytest

from plugins.upstream_compat.cache import View
from plugins.upstream_compat.exclusive import is_exclusive
from plugins.upstream_compat.filter import filter_node
from plugins.upstream_compat.node import offered
from shared.events import streams
from shared.events.cluster_events import NodeEnded
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.scheduling_events import NodeReconciled
from shared.kubelet.fingerprint import fingerprint
from shared.ledger.fingerprints import match
from shared.ledger.fold import GapError, evolve
from tests.fixtures.fingerprint_members import placements_are_exclusive
from tests.ledger.given import History, container, held, listed_empty, pod, zone
from tests.scheduler.compat import build
from tests.scheduler.compat.build import guaranteed, nrt, reported, two_zones
from tests.scheduler.defects.upstream import Upstream

RUNNING = guaranteed("x", cpu="1", node="n1", phase="Running")


class TestR6WatcherWithoutLock:
    """The attribute watcher reads the map and counts without the cache's lock. In Go that can end
    the process; what remains of it in a single-owner cache is the lost mark: a change seen between
    compare and flush is wiped with the older object flushed."""

    def test_upstream_loses_a_configuration_change_seen_while_it_compared(self) -> None:
        story = Upstream(reported(*two_zones(), pods=(RUNNING,)))
        story.lister = [RUNNING]
        matched = story.before_flush()
        story.published(reported(*two_zones(), pods=(RUNNING,), scope="pod"))
        story.cache.flush(matched)
        story.cache.resync(story.api.get, story.lister)
        seen = story.cache.view("n1", story.api.get).nrt
        assert seen is not None
        assert seen.manager.scope == "container"
        assert not story.dirty.config_changed

    def test_default_takes_every_report_in_order_so_that_no_mark_is_needed(self) -> None:
        history = History()
        history.report(zone(0, 8), at=1)
        history.report(zone(0, 8), at=2, scope="pod")
        history.tell(streams.node("n1"), NodeReconciled("n1", "fingerprint", 1, 1))
        assert history.n1.report is not None
        assert history.n1.report.scope == "pod"


class TestR7WatchThatCloses:
    """A closed watch is not opened again (the goroutine spins on the closed channel, or is gone),
    and nothing says that events are missing: the node keeps the configuration of the last event for
    ever."""

    def test_upstream_never_learns_of_a_change_if_its_event_did_not_arrive(self) -> None:
        story = Upstream(nrt(*two_zones()))
        story.api["n1"] = nrt(*two_zones(cpu="1"), policy="none")
        for _ in range(3):
            story.cache.resync(story.api.get, story.lister)
        assert story.free() == 8
        assert story.dirty.config_changed == ()

    def test_default_notices_a_missing_event_by_its_position(self) -> None:
        history = History()
        history.report(zone(0, 8))
        event = NodeEnded("n1", "node-uid-1", "deleted")
        envelope = Envelope(
            history.ledger.position + 2,
            "node/n1",
            1,
            type_of(event),
            1,
            encode(event),
            0,
            "test",
            0,
            "c",
        )
        with pytest.raises(GapError):
            evolve(history.ledger, envelope, event)


class TestR8NodesThatComeAndGo:
    """Objects are listed once at start. A later one never enters the cache: Filter passes it
    blindly and its reservations are ignored. A deleted node is never removed, and its dirty mark is
    retried without an end.
    """

    def test_upstream_passes_a_new_node_blindly_and_remembers_nothing_of_it(self) -> None:
        story = Upstream(nrt(*two_zones()))
        story.published(nrt(*two_zones(cpu="1"), name="n2"), event="ADDED")
        for name in ("a", "b"):
            view = story.cache.view("n2", story.api.get)
            assert view == View(None, fresh=True)
            assert filter_node(guaranteed(name, cpu="6"), offered([]), view).passes
            story.cache.reserve("n2", guaranteed(name, cpu="6"))
        assert story.cache.assumed == {}

    def test_upstream_keeps_a_deleted_node_and_its_dirty_mark(self) -> None:
        story = Upstream(reported(*two_zones(), pods=(RUNNING,)))
        story.lister = [RUNNING]
        del story.api["n1"]
        story.resync()
        assert story.free() == 8
        assert story.dirty.maybe_overreserved == ("n1",)

    def test_default_charges_a_node_that_appears_later(self) -> None:
        history = History()
        history.node("n1")
        history.report(zone(0, 8))
        history.reserve(pod("a", cpus=6))
        assert history.free(0) == 2

    def test_default_ends_the_pods_of_a_node_that_goes_one_by_one(self) -> None:
        history = History()
        history.node("n1")
        history.report(zone(0, 8))
        made = pod("a", cpus=6)
        history.reserve(made)
        history.tell(streams.node("n1"), NodeEnded("n1", "node-uid-1", "deleted"))
        assert history.n1.observed is None
        history.end(made)
        assert history.ledger.pods == {}
        assert history.n1.charges == {}


class TestR9NodeThatRanEmpty:
    """A dirty node without a relevant pod in the lister is skipped ("should never happen"): it
    stays dirty and keeps its reservations until some pod runs there, which its own view may forbid.
    """

    def test_upstream_never_cleans_an_empty_node(self) -> None:
        story = Upstream(reported(*two_zones()))
        story.cache.reserve("n1", guaranteed("a", cpu="6"))
        for _ in range(3):
            story.resync()
        assert story.free() == 2
        assert story.dirty.maybe_overreserved == ("n1",)

    def test_upstream_never_opens_an_empty_node_that_a_foreign_pod_closed(self) -> None:
        story = Upstream(reported(*two_zones()), detection="All")
        story.cache.pod_event(guaranteed("f", node="n1", scheduler="other", phase="Succeeded"))
        story.resync()
        assert story.free() is None

    def test_default_drains_to_zero_when_the_last_pod_ends(self) -> None:
        history = History()
        history.report(zone(0, 8))
        history.reserve(pod("a", cpus=6))
        history.end(pod("a", cpus=6))
        assert history.n1.charges == {}
        assert history.free(0) == 8


class TestR11ReportsWithoutFingerprint:
    """Without a fingerprint (NFD's default) no comparison can succeed: the cache is never renewed
    and its capacity only shrinks."""

    def test_upstream_only_shrinks_without_a_fingerprint(self) -> None:
        story = Upstream(nrt(*two_zones()))
        story.cache.reserve("n1", guaranteed("a", cpu="6"))
        story.lister = [RUNNING]
        story.published(nrt(*two_zones()))
        for _ in range(3):
            story.resync()
        assert story.free() == 2

    def test_default_frees_by_events_about_pods_even_without_fingerprint_or_placements(
        self,
    ) -> None:
        history = History()
        history.report(zone(0, 8), placements=None)
        history.reserve(pod("a", cpus=6))
        assert history.free(0) == 2
        history.end(pod("a", cpus=6))
        assert history.free(0) == 8


class TestTwoMeaningsOfExclusive:
    """The scheduler derives the exclusive pods from the spec, the exporter sees them in
    podresources. For a Guaranteed pod with memory on a node with a Memory Manager that pins nothing
    the answers differ, and the fingerprints never match again (numaresources-operator#1254).
    """

    def test_upstream_counts_a_pod_that_no_exporter_lists_and_stays_dirty(self) -> None:
        shares = guaranteed("m", cpu="100m", memory="1Gi", node="n1", phase="Running")
        assert is_exclusive(shares, ())
        assert not placements_are_exclusive([listed_empty("m")])
        story = Upstream(reported(*two_zones(), pods=(RUNNING,), method="with-exclusive-resources"))
        story.lister = [RUNNING, shares]
        story.resync()
        assert story.dirty.maybe_overreserved == ("n1",)

    def test_default_counts_by_what_the_nodes_managers_track(self) -> None:
        shown = fingerprint([("ns", "x")])
        history = History()
        history.reserve(pod("x", cpus=1))
        history.reserve(pod("m", container("c", memory=2**30)))
        history.report(
            zone(0, 8, 7),
            placements=None,
            fingerprint=shown,
            fingerprint_method="with-exclusive-resources",
            tracked=("cpu",),
        )
        assert match(history.ledger, history.n1) is not None


class TestForeignHeartbeat:
    """In the default detection mode any event of any bound pod of another scheduler, its deletion
    included, closes the node until a fingerprint matches; a busy node of system pods is closed most
    of the time."""

    def test_upstream_closes_the_node_for_every_event_of_a_system_pod(self) -> None:
        story = Upstream(reported(*two_zones(), pods=(RUNNING,)), detection="All")
        story.lister = [RUNNING]
        agent = build.pod(
            "agent", {"name": "c"}, node="n1", scheduler="default-scheduler", phase="Running"
        )
        for _ in range(2):
            story.cache.pod_event(agent)
            assert not story.cache.view("n1", story.api.get).fresh
            story.resync()
            assert story.cache.view("n1", story.api.get).fresh

    def test_default_charges_a_foreign_pod_once_and_leaves_the_node_open(self) -> None:
        history = History()
        history.report(zone(0, 8))
        foreign = msgspec.structs.replace(pod("f", cpus=2), scheduler_name="default-scheduler")
        for version in ("1", "2", "3"):
            history.seen(foreign, node="n1", phase="Running", resource_version=version)
        assert history.free(0) == 6
        history.report(zone(0, 8, 6), at=2, placements=(held("f", 0, 2),))
        assert history.free(0) == 6
