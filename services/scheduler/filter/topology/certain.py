"""Is a prediction certain? Only if every order in which other pods and ends may reach the kubelet
leads to the same zones.

1. On a plain node each container takes the lowest zone that holds all it requests (`predict`). What
   a zone has free then is at least `free_min` and at most `free_max`. If both lead to the same
   zones, no lower zone can hold the pod, and the predicted ones surely do.
2. Under other policies than single-numa-node a pod that comes in another order may lie over several
   zones, whose memory no pod gets alone then. So the state must be known exactly.
3. Nothing is certain of another node, of a kubelet of another version, or without placements in its
   reports.

What happens after the decision is not known here; `shared/ledger/certainty.py` follows it. Must not
know scores or other nodes.
"""

from __future__ import annotations

from services.scheduler.filter.topology.predict import (
    Predicted,
    lowest_places,
    lowest_zones,
    predict,
)
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.ledger.device_views import in_doubt
from shared.ledger.kubelet_rules import is_other_version
from shared.ledger.state import ZoneAmounts


def predict_if_on(node_info: NodeInfo, plan: Plan, config: CycleConfig) -> tuple[Predicted, bool]:
    """Return the prediction and whether it is certain; nothing if predictions are off."""
    predicted = predict(node_info, plan) if config.prediction != "off" else {}
    return predicted, bool(predicted) and is_certain(node_info, plan, predicted)


def is_certain(node_info: NodeInfo, plan: Plan, predicted: Predicted) -> bool:
    """Return whether every possible kubelet state puts the pod into the predicted zones."""
    ledger = node_info.ledger
    if ledger.listed is None or is_other_version(ledger) or lowest_zones(node_info, plan) is None:
        return False
    if plan.rule.policy != SINGLE_NUMA_NODE and not _is_known(node_info, plan):
        return False
    zones = list(predicted.values())
    return _lowest(node_info.free_min, plan) == zones == _lowest(node_info.free_max, plan)


def _is_known(node_info: NodeInfo, plan: Plan) -> bool:
    doubtful = in_doubt(node_info.ledger, plan.rule.policy)
    if any(name in doubtful for part in plan.demand for name in part.amounts):
        return False
    return node_info.free_min == node_info.free_max and not node_info.ledger.ended


def _lowest(free: ZoneAmounts, plan: Plan) -> list[tuple[int]] | None:
    zones = sorted(free.items())
    places = lowest_places(zones, plan.demand, plan.rule.scope)
    return None if places is None else [(zones[place][0],) for place in places]
