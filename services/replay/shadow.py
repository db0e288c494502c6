"""`topolog replay shadow`: a recorded history as shadow mode would have judged it, pod by pod. Pure
but for reading.

The log need not come from shadow mode: every pod that a scheduler other than Topolog placed is
judged as of the moment when it was seen on its node.
"""

from __future__ import annotations

import msgspec

from services.replay import reading
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.explain.shadow import Case, Outcome, Shadow
from services.scheduler.snapshot.config import CycleConfig
from shared.eventlog.port import EventLog
from shared.events.scheduling_events import PodReserved
from shared.ledger.fold import evolve
from shared.ledger.state import Ledger


class Judgement(msgspec.Struct, frozen=True):
    """Counts of all cases, with the notable ones by name. `own` are pods that Topolog placed
    itself, `open` are pods without their kubelet's answer, `elsewhere` are pods that Topolog would
    have sent to another node.
    """

    counts: dict[Outcome, int]
    elsewhere: int
    open: int
    own: int
    cases: list[Case]


async def shadow(log: EventLog, limit: int) -> Judgement:
    """Fold the log and judge each foreign placement before it is folded. At most `limit` differing
    cases are named.
    """
    ledger, placing, judge = Ledger(), ColumnarPlacing(CycleConfig()), Shadow()
    own_uids: set[str] = set()
    cases: list[Case] = []
    async for envelope, event in reading.events(log):
        if isinstance(event, PodReserved):
            own_uids.add(event.uid)
        if event.about.pod not in own_uids:
            judge.before(event, ledger, placing)
        touched = evolve(ledger, envelope, event)
        for name in touched:
            node = ledger.nodes.get(name)
            if node is None or node.observed is None:
                placing.drop_node(name)
            else:
                placing.put_node(node)
        if event.about.pod:
            placing.follow(event.about.pod, ledger.pods.get(event.about.pod))
        judge.after(event)
        cases += [case for case in judge.take() if case.outcome != "agreed"][
            : max(0, limit - len(cases))
        ]
    return Judgement(judge.counts, judge.elsewhere, judge.open, len(own_uids), cases)
