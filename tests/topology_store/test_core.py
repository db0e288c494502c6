"""The reports that are accepted, and the events that they become."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.topology_store import core
from services.topology_store.core import FULL_EVERY, Accepted, Ignored
from services.topology_store.delta import changes, resembles
from shared.domain.cpus import CpuLayout
from shared.domain.report import DeviceGroup, Report
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.ledger.reports import apply_change
from tests.fixtures.examples import examples
from tests.ledger.given import held, zone
from tests.topology_store.words import Node, lists, report, without_zone


def test_the_first_report_is_taken_in_full() -> None:
    decision = Node().take(report())
    assert isinstance(decision, Accepted)
    assert decision.event == NodeReported(report())
    assert decision.expected == 0


def test_unchanged_content_is_no_event() -> None:
    node = Node()
    node.take(report(at=1))
    assert node.take(report(at=2)) == Ignored("unchanged")
    assert node.kinds() == ["NodeReported"]


@pytest.mark.parametrize("at", [9, 10])
def test_an_older_or_doubled_report_of_the_boot_is_ignored_however_it_differs(at: int) -> None:
    node = Node()
    node.take(report(at=10, free=4))
    assert node.take(report(at=at, free=8)) == Ignored("older")


@given(st.permutations(range(1, 7)), st.data())
def test_in_any_order_the_newest_report_wins(order: list[int], data: st.DataObject) -> None:
    free = data.draw(st.lists(st.integers(0, 8), min_size=7, max_size=7))
    node = Node()
    for time_ms in [*order, *order]:
        node.take(report(at=time_ms, free=free[time_ms]))
    assert node.known.report is not None
    assert node.known.report.zones == report(at=6, free=free[6]).zones


def test_a_new_boot_is_taken_in_full_although_its_clock_starts_over() -> None:
    node = Node()
    node.take(report(at=5_000, boot="boot-1"))
    assert isinstance(node.take(report(at=1, boot="boot-2", free=2)), Accepted)
    assert node.kinds() == ["NodeReported", "NodeReported"]
    assert node.known.superseded == ["boot-1"]


def test_a_superseded_boot_never_returns_and_is_refused_once_for_each_exporter() -> None:
    node = Node()
    node.take(report(boot="boot-1"))
    node.take(report(boot="boot-2", free=2))
    refused = node.take(report(at=99_999, boot="boot-1"))
    assert isinstance(refused, Accepted)
    assert "boot-1" in str(refused.event)
    assert "second exporter" in str(refused.event)
    assert node.take(report(at=100_000, boot="boot-1")) == Ignored("refused")
    assert isinstance(node.take(report(at=100_001, boot="boot-1", exporter="exporter-2")), Accepted)
    assert node.kinds() == [
        "NodeReported",
        "NodeReported",
        "NodeReportRefused",
        "NodeReportRefused",
    ]
    assert node.known.report is not None
    assert node.known.report.boot_id == "boot-2"


def test_a_node_that_reports_as_two_boots_at_once_settles_on_the_newer_and_names_the_other() -> (
    None
):
    node = Node()
    for time_ms in range(1, 6):
        node.take(report(at=time_ms, boot="boot-1", free=8 - time_ms, exporter="a"))
        node.take(report(at=time_ms, boot="boot-2", free=time_ms, exporter="b"))
    assert node.known.report is not None
    assert node.known.report.boot_id == "boot-2"
    assert node.kinds().count("NodeReportRefused") == 1


def test_a_zone_that_vanishes_is_appended_in_full() -> None:
    node = Node()
    node.take(report(at=1))
    node.take(report(at=2, zones=without_zone(report(), 1)))
    assert node.kinds() == ["NodeReported", "NodeReported"]
    assert node.known.report is not None
    assert [zone.id for zone in node.known.report.zones] == [0]


@pytest.mark.parametrize(
    "fields",
    [
        {"policy": "restricted"},
        {"scope": "pod"},
        {"placements": None},
        {"tracked": ()},
        {"reserved_cpus": "0"},
        {"cpus": CpuLayout("0-3", "0x4")},
        {"kubelet_version": "v1.36.2"},
        {"devices": (DeviceGroup("g/g", (0,), "a"),)},
        {"cpu_policy": "static"},
    ],
)
def test_a_change_that_a_delta_cannot_express_is_appended_in_full(fields: dict[str, Any]) -> None:
    node = Node()
    node.take(report(at=1))
    node.take(report(at=2, **fields))
    assert node.kinds() == ["NodeReported", "NodeReported"]


def test_a_full_report_comes_after_every_so_many_differences() -> None:
    node = Node()
    for time_ms in range(1, FULL_EVERY + 4):
        node.take(report(at=time_ms, free=time_ms % 8))
    assert node.kinds() == [
        "NodeReported",
        *["NodeReportChanged"] * FULL_EVERY,
        "NodeReported",
        "NodeReportChanged",
    ]


def test_silence_expires_a_node_once_and_its_next_report_counts_in_full() -> None:
    node = Node()
    assert node.silent(31) == Ignored("unchanged"), (
        "a node that never reported has nothing to expire"
    )
    node.take(report(at=1))
    assert node.silent(30) == Ignored("unchanged")
    assert isinstance(node.silent(31), Accepted)
    assert node.silent(60) == Ignored("unchanged")
    assert isinstance(node.take(report(at=2)), Accepted)
    assert node.kinds() == ["NodeReported", "NodeReportExpired", "NodeReported"]
    assert not node.known.expired


def test_a_report_older_than_the_last_one_does_not_end_the_silence() -> None:
    node = Node()
    node.take(report(at=5))
    node.silent(31)
    assert node.take(report(at=4)) == Ignored("older")
    assert node.known.expired


def test_the_commit_of_a_report_is_made_from_its_time_so_that_a_repeat_is_a_duplicate() -> None:
    decisions = [core.decide(core.initial(), report(at=7), 1000) for _ in range(2)]
    assert isinstance(decisions[0], Accepted)
    assert decisions[0] == decisions[1]
    assert decisions[0].commit_id == "report/n1/7"


# -- differences
# --------------------------------------------------------------------------------------------------

_names = st.sampled_from(["a", "b", "c", "d"])
_listed = st.lists(
    st.builds(
        held, _names, st.integers(0, 1), st.integers(0, 3), container_name=st.sampled_from("xy")
    ),
    max_size=6,
)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Draw reports of one node and boot with varying availability, placements and fingerprint."""
    placements = {(p.pod, p.container): p for p in draw(_listed)}
    zones = tuple(
        msgspec.structs.replace(
            zone(zone_id, 8, draw(st.integers(0, 8)), 4, draw(st.integers(0, 4))),
            free=draw(
                st.dictionaries(
                    st.sampled_from(["memory", "hugepages-2Mi"]), st.integers(0, 4), max_size=2
                )
            ),
        )
        for zone_id in (0, 1)
    )
    listed = tuple(placements[key] for key in sorted(placements))
    read = draw(st.sampled_from([(), ("cpu",), ("cpu", "memory")]))
    hidden = tuple(
        msgspec.structs.replace(placement, namespace="", pod="") for placement in draw(_listed)[:2]
    )
    return report(
        at=draw(st.integers(1, 99)),
        zones=zones,
        placements=listed,
        checkpoints=read,
        hidden=hidden,
        fingerprint=draw(_names),
    )


@settings(max_examples=examples(100))
@given(reports(), reports())
def test_a_difference_applied_to_the_report_before_gives_the_report_after(
    before: Report, after: Report
) -> None:
    assert resembles(before, after)
    change = changes(before, after)
    if change is None:
        assert _content(before) == _content(after)
    else:
        assert _content(apply_change(before, change)) == _content(after)
        assert apply_change(before, change).boot_time_ms == after.boot_time_ms


@given(reports())
def test_a_difference_to_itself_is_none(made: Report) -> None:
    assert changes(made, msgspec.structs.replace(made, boot_time_ms=made.boot_time_ms + 1)) is None


def test_a_difference_carries_only_what_changed() -> None:
    old_report, new_report = (
        report(at=1, placements=lists("a", "b")),
        report(at=2, free=7, placements=lists("b", "c")),
    )
    change = changes(old_report, new_report)
    assert isinstance(change, NodeReportChanged)
    assert change.available == {0: {"cpu": 7000}}
    assert [placement.pod for placement in change.listed] == ["c"]
    assert change.unlisted == ("ns/a",)


def _content(made: Report) -> tuple[object, ...]:
    placements = sorted((p.namespace, p.pod, p.container, p.held) for p in made.placements or ())
    return made.zones, placements, made.fingerprint, made.checkpoints, made.hidden
