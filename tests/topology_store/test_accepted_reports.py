"""No report ends a service: every accepted report folds, wakes waiting pods, and is decided on.

Reports are drawn from small worlds that contradict themselves: zones that come and go, amounts that
do not add up, pods listed in impossible places, policies that change between two reports.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.state.state import SchedulerState, dump, load
from services.topology_store import core, validation
from services.topology_store.core import Accepted
from shared.bus import subjects
from shared.domain.pod import Container, Pod
from shared.domain.policies import SCOPES
from shared.domain.report import Placement, Report, Zone, ZonedAmount, ZoneResource
from shared.domain.state_hash import state_hash
from shared.events import streams
from shared.events.catalog import CATALOG, Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved
from shared.events.codec import decode, encode, type_of
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported
from tests.fixtures.examples import examples

GIB = 2**30
RESOURCES = ("cpu", "memory", "hugepages-1Gi", "example.com/gpu", "ephemeral-storage")
AMOUNTS = st.sampled_from((0, 1, 500, 1000, 4000, 8000, GIB, 64 * GIB, 2**53, 2**56))
ZONES = st.sampled_from((0, 1, 2, 5, 63, 1023))
NAMES = st.sampled_from(("p0", "p1", "p2", "stranger"))


def _resource() -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"capacity": AMOUNTS, "allocatable": AMOUNTS, "available": AMOUNTS}
    )


def _placement(zones: list[int]) -> st.SearchStrategy[Any]:
    within = st.lists(st.sampled_from(zones), unique=True, max_size=3) if zones else st.just([])
    amounts = st.fixed_dictionaries(
        {"resource": st.sampled_from(RESOURCES), "zones": within, "amount": AMOUNTS}
    )
    return st.fixed_dictionaries(
        {
            "namespace": st.just("ns"),
            "pod": NAMES,
            "container": st.sampled_from("ci"),
            "held": st.lists(amounts, max_size=3),
        },
        optional={"pod_uid": st.sampled_from(("p0", "u-other"))},
    )


def _second_edition(zones: list[int]) -> st.SearchStrategy[dict[str, Any]]:
    """Return the fields that newer exporters add: ids and layouts, which may be nonsense."""
    lists = st.sampled_from(("", "0-7", "0,2,4-6", "7-0", "x", "nic-[0-3,7]", "9999999"))
    runs = st.sampled_from(("", "0x8", "0-7", "3x9999999", "a"))
    policies = st.sampled_from(("none", "static", "None", "Static", "unknown"))
    layout = st.fixed_dictionaries(
        {"ids": lists, "zones": runs, "sockets": runs, "cores": runs, "caches": runs}
    )
    within = st.lists(st.sampled_from(zones), unique=True, max_size=2) if zones else st.just([])
    group = st.fixed_dictionaries(
        {"resource": st.sampled_from(RESOURCES), "zones": within, "ids": lists, "unhealthy": lists}
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "kubelet_version": st.sampled_from(("v1.36.2", "", "old")),
            "cpu_policy": policies,
            "memory_policy": policies,
            "reserved_cpus": lists,
            "cpus": st.none() | layout,
            "devices": st.none() | st.lists(group, max_size=2),
            "checkpoints": st.lists(st.sampled_from(validation.CHECKPOINTS), unique=True),
            "hidden": st.lists(_placement(zones), max_size=2),
        },
    )


@st.composite
def reports(draw: st.DrawFn) -> dict[str, Any]:
    zones = draw(st.lists(ZONES, unique=True, max_size=4))
    return {
        "node": "n1",
        "boot_id": draw(st.sampled_from(("boot-1", "boot-2"))),
        "boot_time_ms": draw(st.integers(0, 100_000)),
        "policy": draw(st.sampled_from(validation.REPORTED)),
        "scope": draw(st.sampled_from(SCOPES)),
        "options": draw(
            st.dictionaries(
                st.sampled_from(("full-pcpus-only", "prefer-closest-numa-nodes", "x")),
                st.just("true"),
            )
        ),
        "max_numa_nodes": draw(st.sampled_from((0, 1, 8, 1024))),
        "tracked": draw(st.lists(st.sampled_from(RESOURCES), unique=True)),
        "zones": [
            {
                "id": zone,
                "resources": draw(st.dictionaries(st.sampled_from(RESOURCES), _resource())),
                "costs": {zone: 10},
            }
            for zone in zones
        ],
        # One in four lists zones that the report does not: such a report must be refused, or harm
        # nothing.
        "placements": draw(
            st.none()
            | st.lists(
                _placement(draw(st.sampled_from((zones, zones, zones, [0, 1, 2, 5])))), max_size=4
            )
        ),
        **draw(_second_edition(zones)),
        "fingerprint": draw(st.sampled_from(("", "pfp0v0010011223344556677"))),
        "fingerprint_method": draw(st.sampled_from(("", "all", "with-exclusive-resources"))),
    }


class Service:
    """A scheduler's core fed as its loops feed it."""

    def __init__(self) -> None:
        self.core = SchedulerCore(CoreConfig())
        self._positions = count(1)
        self._versions: dict[str, int] = {}

    def hear(self, stream: str, event: Event) -> None:
        version = self._versions[stream] = self._versions.get(stream, 0) + 1
        name = type_of(event)
        envelope = Envelope(
            next(self._positions),
            stream,
            version,
            name,
            CATALOG[name].schema,
            encode(event),
            0,
            "r",
            0,
            "c",
        )
        self.core.evolve(envelope, decode(envelope))

    def decide(self) -> None:
        """Decide, and treat each proposal as appended."""
        for proposal in self.core.decide(100):
            for draft in proposal.drafts:
                self.hear(draft.stream, draft.event)
        assert not self.core.undecidable, self.core.undecidable


def pod(name: str, cpu: int, gpu: int, init: bool) -> Pod:
    asked = {"cpu": cpu, "memory": GIB, **({"example.com/gpu": gpu} if gpu else {})}
    containers = (
        *((Container("i", "init", asked, asked),) if init else ()),
        Container("c", "app", asked, asked),
    )
    return Pod(name, "ns", name, "Guaranteed", containers, scheduler_name="topolog")


@settings(max_examples=examples(75), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(reports() | st.sampled_from(["end p0", "wait"]), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 1),
)
def test_whatever_the_door_takes_in_folds_wakes_and_is_decided_on(
    events: list[Any], init: bool, gpu: int
) -> None:
    service, state, version = Service(), core.initial(), 0
    service.hear(
        streams.node("n1"),
        NodeObserved(
            "n1",
            "uid",
            allocatable={"cpu": 64_000, "memory": 2**50, "pods": 99, "example.com/gpu": 8},
        ),
    )
    for name, cpu in (("p0", 1000), ("p1", 4000), ("p2", 8000)):
        service.hear(
            streams.pod(name),
            PodObserved(pod(name, cpu, gpu, init), node="n1" if name == "p2" else ""),
        )
    for event in events:
        if isinstance(event, str):
            if event.startswith("end") and "p0" in service.core.ledger.pods:
                service.hear(streams.pod("p0"), PodEnded("p0", "deleted"))
        else:
            read = validation.read(subjects.report("n1"), msgspec.json.encode(event))
            if not isinstance(read, Report):
                continue
            # Any boot may follow, because this test checks only the content of reports.
            state.expired = True
            decision = core.decide(state, read, 10**12)
            if isinstance(decision, Accepted):
                version += 1
                core.evolve(state, decision.event, version, 10**12)
                service.hear(streams.report("n1"), decision.event)
        service.decide()
    assert state_hash(load(dump(SchedulerState(service.core.ledger))).ledger) == state_hash(
        service.core.ledger
    )


@pytest.mark.parametrize("policy", validation.REPORTED)
@pytest.mark.parametrize("late", [False, True])
def test_a_log_from_before_the_door_checked_zones_is_folded_and_decided_on(
    policy: str, late: bool
) -> None:
    """Such events stay in logs forever. p2 is listed partly in zone 7, which the report does not
    have.
    """
    amounts = {"cpu": (8000, 4000), "memory": (8 * GIB, 7 * GIB)}
    zones = tuple(
        Zone(id, {name: ZoneResource(all_, all_, free) for name, (all_, free) in amounts.items()})
        for id in (0, 1)
    )
    listed_amounts = (ZonedAmount("cpu", (7,), 4000), ZonedAmount("memory", (7,), GIB))
    listed = tuple(Placement("ns", "p2", container, listed_amounts) for container in "ci")
    whole = Report(
        "n1", "boot", 1, policy=policy, tracked=("cpu", "memory"), zones=zones, placements=listed
    )
    service = Service()
    service.hear(
        streams.node("n1"),
        NodeObserved("n1", "uid", allocatable={"cpu": 64_000, "memory": 2**50, "pods": 99}),
    )
    if not late:
        service.hear(streams.report("n1"), NodeReported(whole))
    service.hear(streams.pod("p2"), PodObserved(pod("p2", 4000, 0, True), node="n1"))
    service.hear(
        streams.report("n1"), NodeReported(msgspec.structs.replace(whole, placements=listed[:1]))
    )
    for name, cpu in (("p0", 1000), ("p1", 4000)):
        service.hear(streams.pod(name), PodObserved(pod(name, cpu, 0, True)))
    service.decide()
    service.hear(streams.report("n1"), NodeReported(whole))
    service.decide()
    service.hear(streams.pod("p2"), PodEnded("p2", "deleted"))
    service.decide()
