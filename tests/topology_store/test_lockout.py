"""Forged and odd reports: bounded by the clock and no sign of life; a locked out node is
reported and can be released.
"""

from __future__ import annotations

import pytest

from services.topology_store.core import Accepted, Ignored
from services.topology_store.moments import MARGIN_MS
from shared.events.report_events import NodeReported, NodeReportRefused
from tests.topology_store.words import Node, report

DAY_MS = 86_400_000


def running(boot: str = "boot-1", up_ms: int = DAY_MS) -> Node:
    """Return a node that has been up for a day and has just reported."""
    node = Node()
    node.take(report(at=up_ms, boot=boot))
    return node


def test_a_boot_that_began_while_the_running_one_reported_does_not_win() -> None:
    node = running()
    refused = node.take(report(at=DAY_MS, boot="forged"))
    assert isinstance(refused, Accepted)
    assert isinstance(refused.event, NodeReportRefused)
    assert "forged began while boot boot-1 was still running" in refused.event.reason
    node.now_ms += 10_000
    assert node.take(report(at=DAY_MS + 10_000)) == Ignored("unchanged")


def test_a_true_reboot_is_taken_in_at_once() -> None:
    node = running()
    node.now_ms += 40_000
    assert isinstance(node.take(report(at=5_000, boot="boot-2")), Accepted)
    assert node.known.superseded == ["boot-1"]


@pytest.mark.parametrize("at", [2**62, DAY_MS + 2 * MARGIN_MS])
def test_a_boot_time_that_has_not_come_yet_does_not_win(at: int) -> None:
    node = running()
    refused = node.take(report(at=at))
    assert isinstance(refused, Accepted)
    assert isinstance(refused.event, NodeReportRefused)
    node.now_ms += 10_000
    assert node.take(report(at=DAY_MS + 10_000)) == Ignored("unchanged")


def test_a_boot_time_beyond_the_clock_is_not_even_a_first_report() -> None:
    node = Node()
    assert node.take(report(at=2**62)) == Ignored("refused")
    assert node.events == []


def test_a_late_report_and_clocks_that_differ_a_little_are_no_forgery() -> None:
    node = running()
    node.now_ms += 600_000
    assert node.take(report(at=DAY_MS + 1_000)) == Ignored("unchanged"), "ten minutes late"
    assert node.take(report(at=DAY_MS + 600_000 + MARGIN_MS // 2)) == Ignored("unchanged"), (
        "the clock was set back by half the margin"
    )


def test_of_a_node_that_fell_silent_another_boot_and_another_moment_are_believed() -> None:
    for refused_report in (report(at=2 * DAY_MS, boot="boot-2"), report(at=3 * DAY_MS)):
        node = running()
        node.silent(31)
        decision = node.take(refused_report)
        assert isinstance(decision, Accepted)
        assert isinstance(decision.event, NodeReported)


def locked() -> Node:
    """Return a node whose boot a forged one has superseded. The forged boot fell silent, and the
    node continues to report.
    """
    node = running()
    node.now_ms += 1_000
    node.take(report(at=500, boot="forged"))
    node.take(report(at=DAY_MS + 1_000))
    node.silent(31)
    for time_ms in (11_000, 21_000):
        node.now_ms += 10_000
        node.take(report(at=DAY_MS + time_ms))
    return node


def test_a_lockout_is_a_event_once_and_no_refused_report_says_that_the_node_is_alive() -> None:
    node = locked()
    assert node.kinds() == [
        "NodeReported",
        "NodeReported",
        "NodeReportRefused",
        "NodeReportExpired",
        "NodeReportRefused",
    ]
    assert "boot boot-1 was superseded" in node.known.locked
    assert node.known.expired
    decision = node.take(report(at=DAY_MS + 31_000))
    assert decision == Ignored("refused")
    assert not decision.alive


def test_an_operator_releases_a_locked_node_for_the_boot_that_it_runs() -> None:
    node = locked()
    node.release()
    assert not node.known.locked
    accepted = node.take(report(at=DAY_MS + 31_000))
    assert isinstance(accepted, Accepted)
    assert isinstance(accepted.event, NodeReported)
    assert node.take(report(at=DAY_MS + 41_000)) == Ignored("unchanged")


def test_a_machine_set_back_to_a_snapshot_is_locked_out_by_its_own_clock_and_released() -> None:
    node = running()
    node.silent(31)
    for time_ms in (1_000, 11_000):
        node.now_ms += 10_000
        node.take(report(at=time_ms))
    assert "set back to a snapshot" in node.known.locked
    node.release()
    assert isinstance(node.take(report(at=21_000)), Accepted)
    assert node.take(report(at=31_000)) == Ignored("unchanged")


def test_a_message_that_comes_late_and_doubled_after_silence_locks_nothing_out() -> None:
    node = running()
    node.silent(31)
    for _ in range(3):
        assert node.take(report(at=DAY_MS)) == Ignored("older")
    assert not node.known.locked


def test_refused_exporters_are_events_only_so_many_times() -> None:
    node = running()
    for number in range(100):
        node.take(report(at=DAY_MS, boot="forged", exporter=f"exporter-{number}"))
    assert node.kinds().count("NodeReportRefused") == 16
