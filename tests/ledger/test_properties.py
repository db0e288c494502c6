"""In any order of events, incremental bounds equal bounds computed from scratch, and a ledger
without pods has no charges.
"""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from services.scheduler.state.state import SchedulerState, dump, load
from shared.domain.pod import Container, Pod
from shared.domain.report import DeviceGroup, Placement, ZonedAmount
from shared.domain.state_hash import canonical, state_hash
from shared.events import streams
from shared.events.cluster_events import NodeEnded, PodRunning
from shared.events.report_events import NodeReportChanged, NodeReportExpired
from shared.ledger import charging, pods, reports
from shared.ledger.fold import evolve
from shared.ledger.recompute import recompute
from shared.ledger.state import Ledger
from shared.ledger.view import compute_free_max, compute_free_min
from tests.fixtures.examples import examples
from tests.ledger.given import History, container, held, listed_empty, pod, zone

NAMES = ("a", "b", "c")
HELD_BY_A = (Placement("", "", "i", (ZonedAmount("cpu", (0,), 1000),), "uid-a"),)
# A report without zones, or with two zones and one device that lies in both.
DEVICES = (
    None,
    (DeviceGroup("vendor.com/gpu", (0,), "a"), DeviceGroup("vendor.com/gpu", (0, 1), "b")),
)
STEPS = (
    "report",
    "report",
    "delta",
    "delta",
    "reserve",
    "reserve",
    "runs",
    "end",
    "node",
    "silence",
    "gone",
)


@st.composite
def placements(draw: st.DrawFn) -> tuple[Placement, ...] | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    drawn = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        cpus = draw(st.sampled_from((0, 2, 4, 6)))
        drawn.append(
            held(name, draw(st.integers(0, 2)), cpus, draw(st.integers(0, 1)))
            if cpus
            else listed_empty(name)
        )
    return tuple(drawn)


@st.composite
def deltas(draw: st.DrawFn, step: int) -> NodeReportChanged:
    listed = draw(placements()) or ()
    gone = draw(st.sets(st.sampled_from(NAMES))) - {placement.pod for placement in listed}
    available = {0: {"cpu": 1000 * draw(st.integers(0, 8))}} if draw(st.booleans()) else {}
    boot, read = (
        draw(st.sampled_from(["boot-1", "boot-1", "boot-2"])),
        draw(st.sampled_from([None, None, ("cpu",)])),
    )
    unlisted = tuple(f"ns/{name}" for name in sorted(gone))
    return NodeReportChanged(
        "n1",
        boot,
        step,
        available=available,
        listed=listed,
        unlisted=unlisted,
        checkpoints=read,
        hidden=draw(hidden(step)),
    )


@st.composite
def hidden(draw: st.DrawFn, step: int) -> tuple[Placement, ...] | None:
    """Return hidden holdings of a pod by its uid, or None for no change."""
    if draw(st.booleans()):
        return None
    cpus, uid = draw(st.integers(0, 4)), f"uid-{draw(st.integers(0, step))}"
    amounts = (ZonedAmount("cpu", (draw(st.integers(0, 1)),), 1000 * cpus),)
    return (Placement("", "", "i", amounts, uid),) if cpus else ()


@st.composite
def containers(draw: st.DrawFn) -> list[Container]:
    """An app container, perhaps with an init container first."""
    parts = [
        container(
            "c",
            draw(st.sampled_from((0, 1, 2, 4, 6))),
            draw(st.sampled_from((0, 0, 1))),
        )
    ]
    if draw(st.booleans()):
        parts.insert(
            0,
            container(
                "i",
                draw(st.integers(1, 4)),
                memory=draw(st.integers(0, 1)),
                kind="init",
            ),
        )
    return parts


@st.composite
def histories(draw: st.DrawFn) -> History:
    history, live = History(), dict[str, Pod]()
    for step in range(draw(st.integers(1, 20))):
        match draw(st.sampled_from(STEPS)):
            case "report":
                zones = [
                    zone(z, 8, draw(st.integers(0, 8)), 2, draw(st.integers(0, 2)))
                    for z in range(draw(st.integers(1, 3)))
                ]
                policy = draw(
                    st.sampled_from(["single-numa-node", "single-numa-node", "restricted"])
                )
                scope = draw(st.sampled_from(["container", "pod"]))
                boot = draw(st.sampled_from(["boot-1", "boot-1", "boot-2"]))
                fields = {
                    "placements": draw(placements()),
                    "policy": policy,
                    "scope": scope,
                    "devices": draw(st.sampled_from(DEVICES)),
                }
                history.report(*zones, at=step, boot=boot, **fields)
            case "delta" if "n1" in history.ledger.nodes:
                history.tell(streams.report("n1"), draw(deltas(step)))
            case "runs" if live:
                uid = draw(st.sampled_from(sorted(live)))
                history.tell(
                    streams.pod(uid), PodRunning(uid, "n1", started_s=draw(st.integers(0, 2)))
                )
            case "reserve":
                name = draw(st.sampled_from(NAMES))
                made = pod(name, *draw(containers()), uid=f"uid-{step}")
                live[made.uid] = made
                history.reserve(made)
            case "end" if live:
                cause = draw(st.sampled_from(["deleted", "deleted", "absent_from_list"]))
                history.end(live.pop(draw(st.sampled_from(sorted(live)))), cause)
            case "node":
                history.node(uid=draw(st.sampled_from(["u1", "u1", "u2"])))
                live = {uid: made for uid, made in live.items() if uid in history.ledger.pods}
            case "silence" if "n1" in history.ledger.nodes:
                history.tell(streams.report("n1"), NodeReportExpired("n1", 60))
            case "gone":
                history.tell(
                    streams.node("n1"),
                    NodeEnded("n1", draw(st.sampled_from(["u1", "u2"])), "deleted"),
                )
    return history


@given(histories())
@settings(max_examples=examples(120), deadline=None)
def test_incremental_bounds_equal_bounds_computed_from_scratch(history: History) -> None:
    for node in history.ledger.nodes.values():
        assert node.free_min == compute_free_min(node)
        assert node.free_max == compute_free_max(node)
        assert node.name_counts == Counter(charge.key for charge in node.charges.values())


@given(histories())
@settings(max_examples=examples(200), deadline=None)
def test_recomputing_what_changed_comes_to_what_recomputing_everything_does(
    history: History,
) -> None:
    recomputed_whole(history)


def recomputed_whole(history: History) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (charging, pods, reports):
            patch.setattr(module, "recompute", lambda node, *_: recompute(node))
        whole = Ledger()
        for envelope, event in history.told:
            evolve(whole, envelope, event)
    assert canonical(whole) == canonical(history.ledger)


def listing_a(*parts: Container) -> History:
    """A full report that confirms one pod in zone 0."""
    history = History()
    history.report(zone(0, 8))
    history.reserve(pod("a", *parts))
    history.report(zone(0, 8, 4), at=2, placements=(held("a", 0, 4),))
    assert history.n1.charges["uid-a"].confirmed
    return history


def test_a_delta_of_a_new_boot_confirms_pods_that_it_does_not_list() -> None:
    history = listing_a(container("c", 4))
    history.tell(streams.report("n1"), NodeReportChanged("n1", "boot-2", 3))
    assert history.n1.charges["uid-a"].confirmed_zones == {0: {"cpu": 4000}}
    recomputed_whole(history)


def test_a_delta_confirms_a_pod_that_had_a_namesake() -> None:
    history = listing_a(container("c", 4))
    history.reserve(pod("b", container("c"), uid="uid-b1"))
    history.reserve(pod("b", container("c"), uid="uid-b2"))
    assert history.n1.charges["uid-b2"].alias is not None
    history.tell(streams.report("n1"), NodeReportChanged("n1", "boot-1", 3))
    assert history.n1.charges["uid-b2"].alias is None
    recomputed_whole(history)


def test_a_running_pod_keeps_no_memory_of_its_init_containers() -> None:
    history = listing_a(container("i", memory=1, kind="init"), container("c", 4))
    assert history.n1.charges["uid-a"].zones
    history.tell(streams.pod("uid-a"), PodRunning("uid-a", "n1"))
    assert not history.n1.charges["uid-a"].zones
    recomputed_whole(history)


def test_a_delta_with_hidden_amounts_changes_the_charge_of_a_listed_pod() -> None:
    history = listing_a(container("i", 2, kind="init"), container("c", 4))
    kept = history.n1.charges["uid-a"].zones
    assert kept
    history.tell(
        streams.report("n1"),
        NodeReportChanged("n1", "boot-1", 3, checkpoints=("cpu",), hidden=HELD_BY_A),
    )
    assert history.n1.charges["uid-a"].zones != kept
    recomputed_whole(history)


@given(histories())
@settings(max_examples=examples(60), deadline=None)
def test_a_ledger_without_pods_carries_no_charge(history: History) -> None:
    for entry in list(history.ledger.pods.values()):
        history.end(entry.pod)
    for node in history.ledger.nodes.values():
        assert node.charges == {}
        listed = any(ended.is_counted for ended in node.ended.values())
        assert listed or all(amount == 0 for amount in node.requested.values())


@given(histories())
@settings(max_examples=examples(30), deadline=None)
def test_a_snapshot_is_the_state(history: History) -> None:
    again = load(dump(SchedulerState(history.ledger))).ledger
    assert state_hash(again) == state_hash(history.ledger)


def test_no_bound_is_above_what_is_allocatable_whatever_a_report_calls_available() -> None:
    """A device that became unhealthy is not free, not even after the end of the pod that held
    it."""
    history = History()
    history.report(zone(0, 8, free=10, gpus=2, free_gpus=3))
    whole = {0: {"cpu": 8000, "vendor.com/gpu": 2}}
    assert (history.n1.free_min, history.n1.free_max) == (whole, whole)
    pod_spec = pod("a", cpus=2)
    history.reserve(pod_spec)
    history.report(zone(0, 8, free=10, gpus=2, free_gpus=3), at=2, placements=(held("a", 0, 2),))
    history.end(pod_spec)
    assert (history.n1.free_min, history.n1.free_max) == (whole, whole)
