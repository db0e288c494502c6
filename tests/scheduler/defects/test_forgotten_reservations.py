"""Defects by which a flush drops reservations that no report shows yet: R1 to R5, and pods that
end.
"""

from __future__ import annotations

import msgspec

from shared.events import streams
from shared.events.scheduling_events import NodeReconciled
from shared.kubelet.fingerprint import fingerprint
from shared.ledger.fingerprints import match
from tests.ledger.given import History, cpu, held, pod, zone
from tests.scheduler.compat import build
from tests.scheduler.compat.build import guaranteed, reported, two_zones
from tests.scheduler.defects.upstream import Upstream

RUNNING = guaranteed("x", cpu="1", node="n1", phase="Running")


def upstream_with_x() -> Upstream:
    """Return the plugin's cache after x runs and is reported, alone on the node."""
    plugin = Upstream(reported(*two_zones(), pods=(RUNNING,)))
    plugin.lister = [RUNNING]
    return plugin


def history_with_x(placements: bool = True) -> History:
    """Return a story with the same node: two zones of 8 CPUs, x in zone 0."""
    history = History()
    history.reserve(pod("x", cpus=1))
    report_x(history, placements)
    return history


def report_x(history: History, placements: bool = True, at: int = 1, **fields: object) -> None:
    """Append a report that shows x only."""
    if placements:
        history.report(zone(0, 8, 7), zone(1, 8), at=at, placements=(held("x", 0, 1),), **fields)
        return
    shown = fingerprint([("ns", "x")])
    history.report(
        zone(0, 8, 7),
        zone(1, 8),
        at=at,
        placements=None,
        fingerprint=shown,
        fingerprint_method="all",
        **fields,
    )


class TestR1PodsBoundButStillPending:
    """The fingerprint counts neither on the exporter's side (not admitted yet) nor on the lister's
    (Pending) a pod that is bound and on its way. Both sides agree, and with the match every
    reservation of the node goes."""

    def test_upstream_drops_the_reservation_of_a_pod_that_no_side_counts_yet(self) -> None:
        story = upstream_with_x()
        story.cache.reserve("n1", guaranteed("a", cpu="6"))
        story.lister.append(guaranteed("a", cpu="6", node="n1", phase="Pending"))
        assert story.free() == 2
        story.resync()
        assert story.free() == 8

    def test_default_keeps_the_charge_until_a_report_proves_the_pod(self) -> None:
        history = history_with_x()
        history.reserve(pod("a", cpus=6))
        report_x(history, at=2)
        assert (history.free(0), history.free(1)) == (1, 2)

    def test_default_settles_by_fingerprint_only_what_the_report_counted(self) -> None:
        history = history_with_x(placements=False)
        history.reserve(pod("a", cpus=6))
        report_x(history, placements=False, at=2)
        matched = match(history.ledger, history.n1)
        assert matched is not None
        history.tell(
            streams.node("n1"),
            NodeReconciled("n1", "fingerprint", history.n1.report_version, matched.position),
        )
        assert (history.free(0), history.free(1)) == (1, 2)


class TestR2ReservationBetweenCompareAndFlush:
    """Resync compares without the lock and flushes with it: a reservation made in between is in the
    map that the flush deletes."""

    def test_upstream_erases_a_reservation_made_while_it_compared(self) -> None:
        story = upstream_with_x()
        matched = story.before_flush()
        story.cache.reserve("n1", guaranteed("a", cpu="6"))
        story.cache.flush(matched)
        assert story.free() == 8
        assert story.cache.assumed == {}

    def test_default_settles_up_to_the_compared_position_and_no_further(self) -> None:
        history = history_with_x(placements=False)
        matched = match(history.ledger, history.n1)
        assert matched is not None
        compared = NodeReconciled("n1", "fingerprint", history.n1.report_version, matched.position)
        history.reserve(pod("a", cpus=6))
        history.tell(streams.node("n1"), compared)
        assert (history.free(0), history.free(1)) == (1, 2)


class TestR3ForeignPodBetweenCompareAndFlush:
    """The foreign flag has the same window: set while resync compares, cleared by the flush, and
    the pod's resources are free again."""

    def test_upstream_forgets_a_foreign_pod_that_arrived_while_it_compared(self) -> None:
        story = Upstream(reported(*two_zones(), pods=(RUNNING,)), detection="All")
        story.lister = [RUNNING]
        matched = story.before_flush()
        story.cache.pod_event(guaranteed("f", cpu="6", node="n1", scheduler="other"))
        assert story.free() is None
        story.cache.flush(matched)
        assert story.free() == 8

    def test_default_charges_a_foreign_pod_from_the_moment_it_is_seen_bound(self) -> None:
        history = history_with_x(placements=False)
        matched = match(history.ledger, history.n1)
        assert matched is not None
        compared = NodeReconciled("n1", "fingerprint", history.n1.report_version, matched.position)
        history.seen(pod("f", cpus=6), node="n1")
        history.tell(streams.node("n1"), compared)
        assert (history.free(0), history.free(1)) == (1, 2)


class TestR4ConfigurationChange:
    """A changed policy or scope flushes the node without any comparison, and the reservations with
    it.
    """

    def test_upstream_drops_reservations_when_the_scope_changes(self) -> None:
        story = upstream_with_x()
        story.cache.reserve("n1", guaranteed("a", cpu="6"))
        story.published(reported(*two_zones(), pods=(RUNNING,), scope="pod"))
        story.cache.resync(story.api.get, story.lister)
        assert story.free() == 8

    def test_default_keeps_the_charge_over_a_change_of_scope(self) -> None:
        history = history_with_x()
        history.reserve(pod("a", cpus=6))
        report_x(history, at=2, scope="pod")
        assert (history.free(0), history.free(1)) == (1, 2)


class TestR5TwoInstants:
    """The object is read at one instant and the pods are listed at another; nothing binds the two.
    An object older than the cached one is believed as soon as its names agree with the lister of
    now."""

    def test_upstream_goes_back_in_time_when_an_older_object_is_read(self) -> None:
        story = upstream_with_x()
        older = story.api["n1"]
        newer = reported(*two_zones(cpu="2"), pods=(RUNNING,))
        story.api["n1"] = newer
        story.resync()
        assert story.free() == 2
        story.api["n1"] = older
        story.resync()
        assert story.free() == 8

    def test_default_compares_within_one_report_and_knows_which_is_newer(self) -> None:
        history = history_with_x()
        old_report = history.n1.report
        report_x(history, at=2)
        new_report = history.n1.report
        assert old_report is not None
        assert new_report is not None
        assert old_report.freshness < new_report.freshness
        assert history.charge(pod("x", cpus=1)).confirmed


class TestPodsThatEnd:
    """Nothing happens when a pod ends: its reservation stays until a flush, which may never
    come.
    """

    def test_upstream_keeps_the_reservation_of_a_deleted_pod(self) -> None:
        story = upstream_with_x()
        story.cache.reserve("n1", guaranteed("a", cpu="6"))
        story.cache.pod_event(guaranteed("a", cpu="6", node="n1", phase="Succeeded"))
        story.cache.resync(story.api.get, story.lister)
        assert story.free() == 2

    def test_default_frees_the_charge_with_the_event_that_the_pod_ended(self) -> None:
        history = history_with_x()
        history.reserve(pod("a", cpus=6))
        history.end(pod("a", cpus=6))
        assert (history.free(0), history.free(1)) == (7, 8)


class TestEveryZoneIsCharged:
    """A reservation is taken from every zone, even from zones that cannot hold the pod."""

    def test_upstream_charges_a_zone_that_cannot_hold_the_pod(self) -> None:
        story = Upstream(
            reported(build.zone(0, cpu="8", memory="8Gi"), build.zone(1, cpu="2", memory="8Gi"))
        )
        story.cache.reserve("n1", guaranteed("a", cpu="6"))
        assert (story.free(0), story.free(1)) == (2, 0)

    def test_default_charges_only_where_the_pod_could_land(self) -> None:
        history = History()
        history.report(zone(0, 8), zone(1, 8, 2))
        history.reserve(pod("a", cpus=6))
        assert (history.free(0), history.free(1)) == (2, 2)
        assert history.charge(pod("a", cpus=6)).zones == {0: cpu(6)}


class TestClassOfServiceIsIgnored:
    """A Burstable pod holds no CPU of a zone, but its request is taken from every zone all the
    same.
    """

    def test_upstream_charges_a_burstable_pod_to_the_zones(self) -> None:
        story = upstream_with_x()
        story.cache.reserve(
            "n1", build.pod("b", build.container(equal=False, cpu="6", memory="1Gi"))
        )
        assert (story.free(0), story.free(1)) == (2, 2)

    def test_default_charges_only_what_the_kubelet_would_pin(self) -> None:
        history = history_with_x()
        history.reserve(msgspec.structs.replace(pod("b", cpus=6), qos="Burstable"))
        assert (history.free(0), history.free(1)) == (7, 8)
