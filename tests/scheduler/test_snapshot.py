"""A snapshot is a disposable cache: a state from it continues exactly as one folded from zero."""

from __future__ import annotations

from services.scheduler import handlers
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.state import state as scheduler_state
from shared.domain.state_hash import state_hash
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported
from tests.ledger.given import pod, report, zone


def told(core: SchedulerCore, stream: str, event: Event) -> None:
    position, version = core.ledger.position + 1, core.versions.get(stream, 0) + 1
    core.evolve(
        Envelope(
            position, stream, version, type_of(event), 1, encode(event), 0, "test", 0, str(position)
        ),
        event,
    )


def given() -> SchedulerCore:
    core = SchedulerCore(CoreConfig())
    told(core, streams.node("n1"), NodeObserved("n1", "u", allocatable={"cpu": 16000, "pods": 110}))
    told(core, streams.report("n1"), NodeReported(report(zone(0, 8), zone(1, 8))))
    told(core, streams.pod("uid-a"), PodObserved(pod("a", cpus=6)))
    for proposal in core.decide(10):
        for draft in proposal.drafts:
            told(core, draft.stream, draft.event)
    told(core, streams.pod("uid-b"), PodObserved(pod("b", cpus=2)))
    return core


def test_a_restored_core_decides_and_folds_as_the_one_that_was_saved() -> None:
    core = given()
    again = handlers.load(CoreConfig(), handlers.dump(core))
    assert state_hash(again.ledger) == state_hash(core.ledger)
    first, second = core.decide(10), again.decide(10)
    assert first == second
    assert [proposal.uid for proposal in second] == ["uid-b"]


def test_the_cores_other_work_changes_nothing_that_a_snapshot_keeps() -> None:
    core, alone = SchedulerCore(CoreConfig()), scheduler_state.SchedulerState()
    for number, (stream, event) in enumerate(events_of_given()):
        envelope = Envelope(
            number + 1,
            stream,
            number + 1,
            type_of(event),
            1,
            encode(event),
            0,
            "test",
            0,
            str(number),
        )
        core.evolve(envelope, event)
        core.decide(3)
        scheduler_state.evolve(alone, envelope, event)
        assert scheduler_state.dump(core.folded) == scheduler_state.dump(alone)


def events_of_given() -> list[tuple[str, Event]]:
    """Return the events of one node, its report, observed pods, and one pod that ends."""
    seen = [(streams.pod(f"uid-{name}"), PodObserved(pod(name, cpus=6))) for name in "abc"]
    ends = [(streams.pod("uid-a"), PodEnded("uid-a", "deleted"))]
    node = [(streams.node("n1"), NodeObserved("n1", "u", allocatable={"cpu": 16000, "pods": 110}))]
    return [
        *node,
        (streams.report("n1"), NodeReported(report(zone(0, 8), zone(1, 8)))),
        *seen,
        *ends,
    ]


def test_the_fold_keeps_snapshots_only_where_the_ledger_alone_decides() -> None:
    assert handlers.fold_of(CoreConfig()).keeps_snapshots


def test_amounts_beyond_64_bits_are_kept_too() -> None:
    core = given()
    ordinary = handlers.dump(core)
    told(core, streams.pod("uid-x"), PodObserved(pod("x", cpus=2**70)))
    assert handlers.dump(core).startswith(b"{")
    for data in (ordinary, handlers.dump(core)):
        assert scheduler_state.dump(scheduler_state.load(data)) == data
    assert scheduler_state.load(handlers.dump(core)) == core.folded
