"""What the scheduler keeps of the log, and all that a snapshot keeps: the ledger, the versions of streams that it writes to,
what is set aside, what surrounds pods, and what is in demand.

Its imports are the key of snapshots, so that nothing else may change this state. Must not know deciding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from services.scheduler.setting_aside.asides import HEARD, Asides, Before
from services.scheduler.surroundings.surroundings import Surroundings
from shared.events import streams
from shared.events.catalog import Fact
from shared.events.cluster_facts import PodEnded, PodObserved
from shared.events.envelope import Envelope
from shared.events.scheduling_facts import DemandWeighed, Wanted
from shared.events.surroundings_facts import is_surrounding
from shared.ledger import fold
from shared.ledger.state import Ledger


class Followed(msgspec.Struct):
    """`versions` is stream -> its version as folded; streams of pods that ended and of nodes that left are forgotten. `wanted`
    is what ranks nodes where the strategy looks at room."""

    ledger: Ledger = msgspec.field(default_factory=Ledger)
    versions: dict[str, int] = {}
    asides: Asides = msgspec.field(default_factory=Asides)
    wanted: tuple[Wanted, ...] = ()
    surroundings: Surroundings = msgspec.field(default_factory=Surroundings)


_decoder = msgspec.json.Decoder(Followed)


def evolve(followed: Followed, envelope: Envelope, fact: Fact) -> fold.Touched:
    """Fold one fact; returns the nodes that it touched."""
    kind = type(fact)
    # Asked by kind, as it is done for every fact: most concern the ledger alone.
    touched = _heard(followed, envelope, fact) if kind in HEARD else fold.evolve(followed.ledger, envelope, fact)
    if is_surrounding(fact):
        followed.surroundings.hear(fact)
        return touched
    beside = _BESIDE.get(kind)
    if beside is not None:
        beside(followed, fact)
    if kind is PodEnded:
        followed.versions.pop(envelope.stream, None)
    elif not envelope.stream.startswith("report/"):
        followed.versions[envelope.stream] = envelope.version
    for name in touched:
        if name not in followed.ledger.nodes:
            followed.versions.pop(streams.node(name), None)
    return touched


def _heard(followed: Followed, envelope: Envelope, fact: Fact) -> fold.Touched:
    """A fact that may set something aside, or open it again."""
    entry = followed.ledger.pods.get(followed.asides.pod_before(fact))
    before = Before(entry.pod, entry.node) if entry is not None else None
    touched = fold.evolve(followed.ledger, envelope, fact)
    return touched + followed.asides.hear(envelope.position, fact, followed.ledger, before)


def _weighed(followed: Followed, fact: DemandWeighed) -> None:
    followed.wanted = fact.wanted


def _pod_told(followed: Followed, fact: PodObserved | PodEnded) -> None:
    followed.surroundings.hear_pod(fact)


_BESIDE: dict[type[Fact], Callable[[Followed, Any], None]] = {
    DemandWeighed: _weighed,
    PodObserved: _pod_told,
    PodEnded: _pod_told,
}
"""What facts say beside the ledger."""


def pass_over(followed: Followed, envelope: Envelope, moves: bool) -> None:
    """A fact that is not folded; `moves` says whether its stream goes on without it."""
    fold.pass_over(followed.ledger, envelope)
    if moves and not envelope.stream.startswith("report/"):
        followed.versions[envelope.stream] = envelope.version


def dump(followed: Followed) -> bytes:
    """The state as a snapshot keeps it."""
    return msgspec.json.encode(followed)


def load(data: bytes) -> Followed:
    """The inverse. Raises msgspec.MsgspecError on anything else."""
    return _decoder.decode(data)
