"""S13: a verdict does not depend on earlier questions: a scheduler that was asked other things
answers as a fresh one that folds the same events.

Asked are pods of the ledger, as if they came now. A fresh scheduler cannot know reservations that
are not folded yet, and a node that ended is asked about until the next decision: then the question
is skipped. Must not know the right answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from services.scheduler.core import SchedulerCore
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.events.codec import decode
from tests.simulation.log import SimLog
from tests.simulation.schedulers import SchedulerProcess

# Steps from one question to the next: every 20, folding from the first event took a third of the
# time that a seed takes.
EVERY = 60
MOST_ASKED = 4


def differing(log: SimLog, scheduler: SchedulerProcess) -> str:
    """Return the first question with another answer, "" for none."""
    asked = scheduler.state
    asked.look()
    cluster = asked.cluster
    assert isinstance(cluster, ColumnarPlacing)
    gone = any(asked._usable_node(name) is None for name in asked._changed)
    if scheduler.astray or gone or any(node_info.assumed for node_info in cluster.nodes()):
        return ""
    fresh = _folded(log, scheduler)
    assert isinstance(fresh.cluster, ColumnarPlacing)
    for pod in _questions(asked):
        for name in sorted(
            {node_info.name for node_info in cluster.nodes()}
            | {node_info.name for node_info in fresh.cluster.nodes()}
        ):
            kept_answer, fresh_answer = cluster.verdict(pod, name), fresh.cluster.verdict(pod, name)
            if kept_answer != fresh_answer:
                return (
                    f"{scheduler.name} says of {pod.name} on {name} {kept_answer}, "
                    f"a fresh one {fresh_answer}"
                )
        placed, again = (_essence(each.place(pod)) for each in (cluster, fresh.cluster))
        if placed != again:
            return f"{scheduler.name} answers {pod.name} with {placed}, a fresh one with {again}"
    return ""


def _folded(log: SimLog, scheduler: SchedulerProcess) -> SchedulerCore:
    """Return a core that began after it had folded the log, as after a start."""
    fresh = SchedulerCore(scheduler.state.config, begun=False)
    for envelope in log.read_now(0, scheduler.position):
        fresh.evolve(envelope, decode(envelope))
    fresh.begin()
    fresh.take_shard(scheduler.state.shard)
    fresh.look()
    return fresh


def _questions(core: SchedulerCore) -> Iterator[Pod]:
    """Return waiting pods first, as they are, then other pods as new pods of their kind."""
    entries = sorted(
        core.ledger.pods.values(), key=lambda entry: (bool(entry.node), -entry.observed_at)
    )
    for entry in entries[:MOST_ASKED]:
        waits = not entry.node
        yield (
            entry.pod
            if waits
            else msgspec.structs.replace(
                entry.pod, uid=f"like {entry.pod.uid}", name=f"like {entry.pod.name}"
            )
        )


def _essence(answer: Placed | Unplaceable) -> object:
    """The node and the prediction, or the refusal in full; not how many were looked at: lower
    scores are not all checked.
    """
    return (
        answer if isinstance(answer, Unplaceable) else (answer.node, answer.score, answer.predicted)
    )
