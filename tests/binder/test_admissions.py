"""An event shows the zone of a pod, once a report lists it completely, and whether that
was predicted.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.binder import announcer as module
from services.binder.admissions import Admissions, Admitted, Annotate
from services.binder.pending_announcements import PendingAnnouncements
from shared.domain.pod import Container
from shared.domain.report import Placement, ZonedAmount
from shared.domain.zone_allocation import DeviceHolding, ZoneAllocation
from shared.events.binding_events import PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.events.surroundings_events import NodeDevicesObserved
from shared.kube.kai import PLACEMENT
from shared.owned.devices import Device
from tests.binder.test_announcer import Told
from tests.ledger.given import held, listed_empty, pod, report, zone
from tests.runtime.helpers import running, until


def on_its_way(predicted: dict[str, tuple[int, ...]] | None = None) -> Admissions:
    admissions = Admissions()
    for event in (
        NodeReported(report(zone(0, 8), zone(1, 8))),
        PodObserved(pod("web", cpus=2)),
        PodReserved("uid-web", "n1", predicted={"c": (0,)} if predicted is None else predicted),
        PodBound("uid-web", "n1"),
    ):
        assert admissions.fold(event) == []
    return admissions


def changed(*listed: object) -> NodeReportChanged:
    return NodeReportChanged("n1", "boot-1", 2, listed=listed)  # type: ignore[arg-type]


def test_a_listing_without_the_requested_resources_is_no_admission() -> None:
    admissions = on_its_way()
    assert admissions.fold(changed(listed_empty("web"))) == []
    assert admissions.fold(changed(held("web", 0, 1))) == []
    assert admissions.fold(changed(held("other", 0, 2))) == []
    assert admissions.fold(changed(held("web", 0, 2))) == [
        Admitted("uid-web", "n1", {"c": (0,)}, {"c": (0,)})
    ]
    assert admissions.fold(changed(held("web", 0, 2))) == []


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        ({"c": (1,)}, "Admitted on zone 1 of n1, as predicted"),
        ({"": (1,)}, "Admitted on zone 1 of n1, as predicted"),
        ({"c": (0,)}, "Admitted on zone 1 of n1; predicted was zone 0"),
        ({}, "Admitted on zone 1 of n1"),
    ],
)
def test_what_was_predicted_is_compared(
    predicted: dict[str, tuple[int, ...]], message: str
) -> None:
    (admitted,) = on_its_way(predicted).fold(
        NodeReported(report(zone(0, 8), zone(1, 8), placements=(held("web", 1, 2),)))
    )
    assert admitted.message == message


def certain(*between: Event) -> Admissions:
    admissions = Admissions()
    for event in (
        NodeReported(report(zone(0, 8), zone(1, 8))),
        PodObserved(pod("web", cpus=2)),
        PodReserved("uid-web", "n1", predicted={"c": (0,)}, certain=True),
        NodeCharged("n1", "uid-web"),
        PodBound("uid-web", "n1"),
        PodObserved(pod("web", cpus=2), node="n1"),
        *between,
    ):
        assert admissions.fold(event) == []
    return admissions


def test_a_zone_that_a_certain_prediction_excludes_is_a_drift() -> None:
    (admitted,) = certain().fold(changed(held("web", 1, 2)))
    assert admitted.drift == (
        "Admitted on zone 1 of n1, but zone 0 was certain: the kubelet does not work like its model"
    )
    (admitted,) = certain().fold(changed(held("web", 0, 2)))
    assert admitted.drift == ""
    (admitted,) = on_its_way().fold(changed(held("web", 1, 2)))
    assert admitted.drift == ""


@pytest.mark.parametrize(("zone_id", "drifts"), [(0, False), (1, True)])
def test_an_annotation_and_a_listing_of_the_whole_pod_show_a_drift(
    zone_id: int, drifts: bool
) -> None:
    placement = (ZonedAmount("cpu", (zone_id,), 2000),)
    (annotated,) = certain().fold(PodObserved(pod("web", cpus=2), node="n1", placement=placement))
    assert bool(annotated.drift) is drifts
    (listed,) = certain().fold(changed(held("web", zone_id, 2, container_name="")))
    assert bool(listed.drift) is drifts


@pytest.mark.parametrize(
    "event",
    [
        NodeCharged("n1", "uid-other"),
        PodObserved(pod("foreign", cpus=1), node="n1"),
        PodEnded("uid-other", "deleted", "n1"),
        PodEnded("uid-other", "deleted"),
        changed(held("foreign", 0, 8)),
        NodeReportChanged("n1", "boot-1", 2, unlisted=("ns/foreign",)),
        NodeReported(report(zone(0, 8), zone(1, 8), at=3)),
    ],
)
def test_nothing_is_certain_after_something_else_happened_on_the_node(event: Event) -> None:
    (admitted,) = certain(event).fold(changed(held("web", 1, 2)))
    assert admitted.drift == ""


@pytest.mark.parametrize(
    "event", [NodeCharged("n2", "uid-other"), PodEnded("uid-other", "deleted", "n2")]
)
def test_what_happens_on_another_node_is_no_excuse(event: Event) -> None:
    (admitted,) = certain(event).fold(changed(held("web", 1, 2)))
    assert admitted.drift


async def test_a_drift_is_a_warning_event() -> None:
    stream = Told()
    stream.kube.go.set()
    stream.tell(
        "report/n1",
        NodeReported(report(zone(0, 8), zone(1, 8))),
        PodObserved(pod("web", cpus=2)),
        PodReserved("uid-web", "n1", predicted={"c": (0,)}, certain=True),
        PodBound("uid-web", "n1"),
        changed(held("web", 1, 2)),
    )
    async with running(stream.announcer.run()):
        await until(lambda: len(stream.kube.events) == 2)
    event = next(event for event in stream.kube.events if event["reason"] != "Scheduled")
    assert (event["type"], event["reason"]) == ("Warning", "PlacementDrift")


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [("2-3", ""), ("4-5", "container c: CPUs 4-5, reserved are 2-3"), ("", "unlisted")],
)
def test_what_an_agent_reports_is_compared_with_the_reservation(cpus: str, expected: str) -> None:
    admissions = on_its_way({})
    allocation = ZoneAllocation({0: {"cpu": 2000}}, "2-3")
    assert admissions.fold(PodReserved("uid-web", "n1", allocation=allocation)) == []
    assert admissions.fold(PodBound("uid-web", "n1")) == []
    amounts = (ZonedAmount("cpu", (0,), 2000, cpus),)
    entry = Placement("ns", "web", "c" if cpus else "another", amounts, "uid-web")
    admitted = admissions.fold(NodeReportChanged("n1", "boot-1", 2, enforced=(entry,)))
    assert [pod.drift.removeprefix("Runs on n1 otherwise than reserved: ") for pod in admitted] == (
        [expected] if cpus else []
    )


@pytest.mark.parametrize(
    ("given_id", "expected"),
    [
        ("GPU-0", ""),
        ("GPU-1", "container c: GPUs GPU-1, reserved are GPU-0"),
        ("index-1", ""),  # not how the Device object names cards
    ],
)
def test_the_gpus_that_the_kubelet_gave_are_compared_with_the_chosen_ones(
    given_id: str, expected: str
) -> None:
    gpu = "nvidia.com/gpu"
    wanting = msgspec.structs.replace(
        pod("web"), containers=(Container("c", "app", {gpu: 1}, {gpu: 1}),)
    )
    cards = tuple(Device("gpu", minor, id=f"GPU-{minor}") for minor in range(2))
    allocation = ZoneAllocation(devices=(DeviceHolding("gpu", 0, {}, id="GPU-0"),))
    admissions = Admissions()
    for event in (
        NodeDevicesObserved("n1", devices=cards),
        NodeReported(report(zone(0, 8), tracked=(gpu,))),
        PodObserved(wanting),
        PodReserved("uid-web", "n1", allocation=allocation),
        PodBound("uid-web", "n1"),
    ):
        assert admissions.fold(event) == []
    entry = Placement("ns", "web", "c", (ZonedAmount(gpu, (0,), 1, given_id),))
    (admitted,) = admissions.fold(changed(entry))
    assert admitted.drift.removeprefix("Runs on n1 otherwise than reserved: ") == expected


@pytest.mark.parametrize(
    ("given_ids", "is_disturbed", "expected"),
    [
        ("GPU-0,GPU-1", False, ""),
        ("GPU-0,GPU-2", False, "0,2, predicted 0-1 or 2-3"),
        ("GPU-0,GPU-2", True, ""),
    ],
)
def test_gpus_that_the_device_plugin_does_not_prefer_are_a_drift(
    given_ids: str, is_disturbed: bool, expected: str
) -> None:
    gpu = "nvidia.com/gpu"
    wanting = msgspec.structs.replace(
        pod("web"), containers=(Container("c", "app", {gpu: 2}, {gpu: 2}),)
    )
    cards = tuple(Device("gpu", minor, id=f"GPU-{minor}") for minor in range(4))
    admissions = Admissions()
    for event in (
        NodeDevicesObserved("n1", devices=cards),
        NodeReported(report(zone(0, 8), tracked=(gpu,))),
        PodObserved(wanting),
        PodReserved("uid-web", "n1", predicted={"c": (0,)}, predicted_gpus=("0-1", "2-3")),
        NodeCharged("n1", "uid-web"),
        PodBound("uid-web", "n1"),
    ):
        assert admissions.fold(event) == []
    if is_disturbed:
        assert admissions.fold(NodeCharged("n1", "uid-other")) == []
    entry = Placement("ns", "web", "c", (ZonedAmount(gpu, (0,), 2, given_ids),))
    (admitted,) = admissions.fold(changed(entry))
    prefix = "Admitted on n1 with other GPUs than predicted: "
    assert admitted.drift.removeprefix(prefix) == expected


def test_a_pod_that_ended_is_forgotten() -> None:
    admissions = on_its_way()
    admissions.fold(PodEnded("uid-web", "deleted", "n1"))
    assert admissions.fold(changed(held("web", 0, 2))) == []
    assert not admissions._pending
    assert not admissions._bound
    assert not admissions._undisturbed


async def test_the_event_follows_scheduled_and_too_many_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(module.PER_S, "admitted", 0)
    for allowed in (False, True):
        scene = Told()
        scene.kube.go.set()
        scene.tell("report/n1", NodeReported(report(zone(0, 8), zone(1, 8))))
        scene.tell(
            "pod/uid-web",
            PodObserved(pod("web", cpus=2)),
            PodReserved("uid-web", "n1", predicted={"c": (0,)}),
        )
        scene.tell("pod/uid-web", PodBound("uid-web", "n1"))
        scene.tell("report/n1", changed(held("web", 0, 2)))
        async with running(scene.announcer.run()):
            await until(lambda scene=scene, wanted=1 + allowed: len(scene.kube.said) == wanted)  # type: ignore[misc]
            await asyncio.sleep(0.02)
        reasons = {event["reason"] for event in scene.kube.events}
        assert reasons == ({"Scheduled", "AdmittedOnZone"} if allowed else {"Scheduled"})
        monkeypatch.setitem(module.PER_S, "admitted", 20)


async def test_of_many_bindings_in_a_second_only_some_have_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(module.PER_S, "bound", 3)
    scene = Told()
    scene.kube.go.set()
    names = [f"p{number}" for number in range(20)]
    for name in names:
        scene.tell(f"pod/uid-{name}", PodObserved(pod(name, cpus=1)), PodBound(f"uid-{name}", "n1"))
    async with running(scene.announcer.run()):
        await until(lambda: not scene.announcer.pending and not scene.announcer.pending.in_flight)
    assert 3 <= len(scene.kube.events) <= 6


@pytest.mark.parametrize(
    ("one_zone", "zones", "missed"),
    [
        ("", {"a": (0, 1)}, False),
        ("pod", {"a": (0,), "b": (1,)}, True),
        ("container", {"a": (0,), "b": (1,)}, False),
        ("container", {"a": (0, 1)}, True),
        ("pod", {"a": (0,), "b": (0,)}, False),
    ],
)
def test_a_pod_that_was_required_to_be_in_one_zone_and_is_not(
    one_zone: str, zones: dict[str, tuple[int, ...]], missed: bool
) -> None:
    admitted = Admitted("uid", "n1", zones, {}, one_zone)
    assert bool(admitted.missed) is missed
    assert not missed or "required to be in one zone" in admitted.missed


async def test_a_missed_requirement_is_a_warning_event() -> None:
    stream = Told()
    stream.kube.go.set()
    stream.tell(
        "report/n1",
        NodeReported(report(zone(0, 8), zone(1, 8))),
        PodObserved(pod("web", cpus=2)),
        PodReserved("uid-web", "n1", one_zone="pod"),
        PodBound("uid-web", "n1"),
        changed(
            msgspec.structs.replace(
                held("web", 0, 2),
                held=(ZonedAmount("cpu", (0,), 1000), ZonedAmount("cpu", (1,), 1000)),
            )
        ),
    )
    async with running(stream.announcer.run()):
        await until(lambda: len(stream.kube.events) == 2)
    event = next(event for event in stream.kube.events if event["reason"] != "Scheduled")
    assert (event["type"], event["reason"]) == ("Warning", "ZoneRequirementMissed")
    assert event["message"] == (
        "Admitted on zones 0, 1 of n1, but the pod was required to be in one zone"
    )


KAI_POD = msgspec.structs.replace(pod("theirs", cpus=1), scheduler_name="kai-scheduler")


@pytest.mark.parametrize(
    ("annotate", "first", "annotates"),
    [
        ("auto", (), False),
        ("auto", (PodObserved(KAI_POD, node="n2"),), True),
        ("false", (PodObserved(KAI_POD, node="n2"),), False),
        ("true", (), True),
    ],
)
async def test_admitted_pods_are_annotated_for_kai_scheduler(
    annotate: Annotate, first: tuple[Event, ...], annotates: bool
) -> None:
    stream = Told()
    stream.kube.go.set()
    stream.announcer.pending = PendingAnnouncements("topolog", annotate)
    stream.tell(
        "report/n1",
        *first,
        NodeReported(report(zone(0, 8), zone(1, 8))),
        PodObserved(pod("web", cpus=2)),
        PodReserved("uid-web", "n1"),
        PodBound("uid-web", "n1"),
        changed(held("web", 1, 2)),
    )
    async with running(stream.announcer.run()):
        await until(lambda: len(stream.kube.events) == 2 and (stream.kube.patches or not annotates))
    annotations = {PLACEMENT: '[{"zone":"node-1","amount":{"cpu":"2"}}]'}
    wanted = {"metadata": {"uid": "uid-web", "annotations": annotations}}
    assert stream.kube.patches == ([wanted] if annotates else [])
