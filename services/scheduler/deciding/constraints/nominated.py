"""Room that another scheduler keeps: a pending pod with `status.nominatedNodeName` counts on its node as if it stood there, for
pods of no higher priority. Semantics: kube-scheduler's filtering with nominated pods (1.36), which nominates pods that it evicts
others for, and those whose binding may take a while.

Not a field of our pod: what was seen of others' bars nodes. By amounts of the node alone, as kube-scheduler knows no zones;
nominees of this scheduler hold zones in the ledger.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from services.scheduler.deciding.constraints.constraint import Around, Check, KeepsNothing
from services.scheduler.deciding.node_facts import NodeFacts
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import PODS


class Nominated(KeepsNothing):
    name = "nominated"

    def check(self, pod: Pod, kept: Any, around: Around) -> Check | None:
        taken: dict[str, Counter[str]] = {}
        whose: dict[str, str] = {}
        for each in around.surroundings.nominations.values():
            if each.priority >= pod.priority and each.pod_uid != pod.uid:
                taken.setdefault(each.node, Counter()).update({**each.requests, PODS: 1})
                whose[each.node] = each.key
        if not taken:
            return None
        request = {**effective_request(pod), PODS: 1}

        def check(facts: NodeFacts) -> Refusal | None:
            for name, amount in taken.get(facts.name, {}).items():
                if 0 < request.get(name, 0) > facts.free(name) - amount:
                    return Refusal(facts.name, Reason.NOMINATED, whose[facts.name])
            return None

        return check
