"""Pods come in few kinds: equal parts of their specs are one object, with the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.scheduler.state import state as scheduler_state
from services.topology_store import mirror_fold
from shared.domain.pod import Constraints, Pod, Toleration
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.events.codec import encode
from shared.events.report_events import NodeReported
from shared.ledger import alike
from shared.ledger.state import Ledger, LedgerPod
from tests.ledger.given import History, container, pod, report, zone

TOLERANT = Constraints(tolerations=(Toleration("example.com/gpu", "Exists"),))


def decoded(name: str, cpus: int, constraints: Constraints) -> Pod:
    """Return a pod as the log gives it, which shares no part with another pod."""
    changed = msgspec.structs.replace(pod(name, container("c", cpus)), constraints=constraints)
    return msgspec.json.decode(encode(PodObserved(changed)), type=PodObserved).pod


def seen(*pods: Pod) -> History:
    history = History()
    for pod_spec in pods:
        history.tell(streams.pod(pod_spec.uid), PodObserved(pod_spec))
    return history


def of_scheduler(history: History) -> dict[str, LedgerPod]:
    return scheduler_state.load(
        scheduler_state.dump(scheduler_state.SchedulerState(ledger=history.ledger))
    ).ledger.pods


def of_store(history: History) -> dict[str, LedgerPod]:
    return mirror_fold.load(
        msgspec.json.encode(mirror_fold.Mirrored(ledger=history.ledger))
    ).ledger.pods


def of_loaded(history: History) -> Ledger:
    state = scheduler_state.SchedulerState(ledger=history.ledger)
    return scheduler_state.load(scheduler_state.dump(state)).ledger


def decoded_event(event: PodObserved) -> PodObserved:
    return msgspec.json.decode(encode(event), type=PodObserved)


@pytest.mark.parametrize(
    "held",
    [lambda history: history.ledger.pods, of_scheduler, of_store],
    ids=["folded", "scheduler", "store"],
)
def test_pods_of_one_kind_hold_what_they_say_alike_once(
    held: Callable[[History], dict[str, LedgerPod]],
) -> None:
    texts = [
        decoded("a", 2, TOLERANT),
        decoded("b", 2, TOLERANT),
        decoded("c", 3, Constraints()),
        decoded("d", 3, Constraints()),
    ]
    again = [
        decoded(pod_spec.name, 2 + (number > 1), pod_spec.constraints)
        for number, pod_spec in enumerate(texts)
    ]
    a, b, c, d = (entry.pod for entry in held(seen(*texts)).values())
    assert [a, b, c, d] == again
    assert a.containers is b.containers
    assert a.constraints is b.constraints
    assert c.containers is d.containers
    assert a.containers != c.containers


@pytest.mark.parametrize(
    "loaded", [lambda history: history.ledger, of_loaded], ids=["folded", "scheduler"]
)
def test_equal_parts_of_charges_and_nodes_are_one_object(
    loaded: Callable[[History], Ledger],
) -> None:
    history = History()
    for name in ("n1", "n2"):
        zones = [msgspec.structs.replace(zone(number, 8), costs={0: 10}) for number in (0, 1)]
        history.node(name, allocatable={"cpu": 16_000})
        made = msgspec.structs.replace(report(*zones), node=name)
        history.tell(streams.report(name), NodeReported(made))
    labelled = [pod(name, cpus=2, labels={"app": "a"}) for name in ("a", "b", "c", "d")]
    for number, pod_spec in enumerate(labelled):
        event = PodObserved(pod_spec, node=f"n{number % 2 + 1}")
        history.tell(streams.pod(pod_spec.uid), decoded_event(event))
    ledger = loaded(history)
    first, second = ledger.nodes["n1"], ledger.nodes["n2"]
    assert first.observed is not None
    assert second.observed is not None
    assert first.observed.allocatable is second.observed.allocatable
    assert first.report is not None
    assert second.report is not None
    assert first.report.zones[0].costs is second.report.zones[1].costs
    charges = [*first.charges.values(), *second.charges.values()]
    assert len({id(charge.possible) for charge in charges}) == 1
    assert charges[0].possible == {"c": (0, 1)}
    assert len({id(charge.demand) for charge in charges}) == 1
    assert len({id(entry.pod.labels) for entry in ledger.pods.values()}) == 1
    parts = [charges[0].confirmed_zones, ledger.pods["uid-a"].predicted, labelled[0].overhead]
    assert parts[0] is parts[1] is alike.NOTHING
    assert not alike.NOTHING


@pytest.mark.parametrize(
    "odd",
    [
        {"containers": pod("x", cpus=1 << 70).containers},
        {"constraints": Constraints(kept={"spread": 1 << 70})},
    ],
)
def test_what_has_more_than_64_bits_stays_as_it_is(odd: dict[str, Any]) -> None:
    strange = msgspec.structs.replace(pod("x", cpus=1), **odd)
    copied = msgspec.structs.replace(strange)
    alike.share([strange])
    assert strange == copied


def test_what_is_only_written_alike_stays_as_it_is() -> None:
    listed, paired = (
        msgspec.structs.replace(pod(name, cpus=1), constraints=Constraints(kept={"ports": ports}))
        for name, ports in (("a", ["80"]), ("b", ("80",)))
    )
    alike.share([listed, paired])
    assert paired.constraints.kept == {"ports": ("80",)}


def test_of_too_many_kinds_all_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "KINDS", 2)
    for kept in (alike._kinds, alike._constraints):
        kept.clear()  # pods of other tests
    texts = [
        decoded(f"p{number}", 1 + number % 5, Constraints(node_name=f"n{number % 5}"))
        for number in range(20)
    ]
    earlier = [msgspec.structs.replace(pod_spec) for pod_spec in texts]
    assert [entry.pod for entry in seen(*texts).ledger.pods.values()] == earlier
    assert max(len(alike._kinds), len(alike._constraints)) <= 2
