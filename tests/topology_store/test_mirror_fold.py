"""The mirror's fold continues after events that it cannot apply, and remembers since when a node is
silent.
"""

from __future__ import annotations

import msgspec

from services.topology_store import mirror_fold
from services.topology_store.mirror_fold import Mirrored
from shared.events import streams
from shared.events.catalog import Event
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported, NodeReportExpired
from tests.topology_store.words import report


def envelope(position: int, event: Event, time_us: int = 0) -> Envelope:
    return Envelope(
        position,
        streams.report("n1"),
        position,
        type_of(event),
        1,
        encode(event),
        time_us,
        "test",
        0,
        str(position),
    )


def test_silence_is_remembered_over_a_snapshot_and_ends_with_a_report() -> None:
    state = Mirrored()
    expired = NodeReportExpired("n1", 30)
    mirror_fold.evolve(state, envelope(1, NodeReported(report())), NodeReported(report()))
    mirror_fold.pass_over(state, envelope(2, NodeReported(report())))
    assert mirror_fold.evolve(state, envelope(3, expired, 90_000_000), expired) == ("n1",)
    again = mirror_fold.load(msgspec.json.encode(state))
    assert again.silent_since_us == {"n1": 60_000_000}
    later = NodeReported(report(at=2))
    mirror_fold.evolve(again, envelope(4, later), later)
    assert again.silent_since_us == {}
