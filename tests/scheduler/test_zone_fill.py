"""The metric topolog_zone_fill: the share of the zones that is not guaranteed free."""

from __future__ import annotations

import pytest

from services.scheduler.state.totals import zone_fill
from shared.events.cluster_events import PodObserved
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.ledger.state import Ledger
from tests.ledger.given import History, pod, report, zone


def test_a_charge_fills_every_zone_where_the_pod_could_land() -> None:
    given = History()
    given.tell("report/n1", NodeReported(report(zone(0, 8), zone(1, 8))))
    assert zone_fill(given.ledger)["cpu"] == pytest.approx(0)
    given.tell("pod/uid-web", PodObserved(pod("web", cpus=2)))
    given.tell("pod/uid-web", PodReserved("uid-web", "n1", 1, 3))
    given.tell("node/n1", NodeCharged("n1", "uid-web", {0: {"cpu": 2000}, 1: {"cpu": 2000}}))
    assert zone_fill(given.ledger)["cpu"] == pytest.approx(0.25)


def test_a_cluster_without_reports_has_no_fill() -> None:
    assert zone_fill(Ledger()) == {}
