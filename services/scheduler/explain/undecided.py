"""Why the state of a node's kubelet is undecided: a closed set of names, used in all refusals and
predictions.

If a report allows several kubelet states, the hint providers and the ledger name the reason. This
module selects the names on which a pod's filter result may depend. It adds one reason that concerns
the pod itself: the kubelet or its device plugin may choose among several devices. It does not know
why a node refused a pod, or other nodes.
"""

from __future__ import annotations

from collections.abc import Callable

from services.scheduler.filter.constraints.unusable_resources import MAY_LIE_IN_ZONES
from services.scheduler.filter.topology.bounds import possible
from services.scheduler.filter.topology.kubelet_search import KubeletSearch, kubelet_search_of
from services.scheduler.select.cluster import Cluster
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import BY_KUBELET, Plan
from shared.domain.pod import Pod
from shared.domain.policies import NONE
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import CPU, is_device, is_memory
from shared.hints.cpu import SPREAD, WHOLE_CORES
from shared.hints.devices import UNHEALTHY
from shared.hints.memory import SEVERAL_GROUPS
from shared.hints.splits import TooManyChoicesError
from shared.ledger.kubelet_states import (
    EARLIER,
    NO_PLACEMENTS,
    OTHER_KUBELET,
    PARTIALLY_LISTED,
    UNLISTED,
)
from shared.ledger.open_holdings import ENDED, HIDDEN

MEMORY_GROUPS, HIDDEN_INIT, ENDED_HELD = SEVERAL_GROUPS, HIDDEN, ENDED
PICKS = "device picks"

# All names; docs/feasibility.md explains each.
NAMES = (
    MEMORY_GROUPS,
    HIDDEN_INIT,
    WHOLE_CORES,
    SPREAD,
    PICKS,
    UNHEALTHY,
    ENDED_HELD,
    OTHER_KUBELET,
    EARLIER,
    NO_PLACEMENTS,
    PARTIALLY_LISTED,
    UNLISTED,
)

# Reasons that may hold in one possible state of the kubelet and not in another.
DEPENDS_ON_STATE = {
    Reason.NO_SINGLE_ZONE,
    Reason.NO_ZONE_SET,
    Reason.TOO_LITTLE_FREE,
    Reason.SMT_ALIGNMENT,
    Reason.NOT_ON_EVERY_BRANCH,
    Reason.BRANCH_LIMIT,
}

# These names matter only to pods that request such a resource.
_CONCERNS: dict[str, Callable[[str], bool]] = {
    MEMORY_GROUPS: is_memory,
    WHOLE_CORES: lambda name: name == CPU,
    SPREAD: lambda name: name == CPU,
    UNHEALTHY: is_device,
}


def _undecided_names(node_info: NodeInfo, plan: Plan) -> tuple[str, ...]:
    """Return the sorted names that may matter to a pod with this plan; empty if everything that
    matters to it is known.
    """
    if plan.mode not in BY_KUBELET or node_info.report is None:
        return ()
    search = kubelet_search_of(node_info, plan)
    asked = {name for part in plan.demand for name in part.amounts}
    undecided = {
        name for name in search.bounds if name not in _CONCERNS or any(map(_CONCERNS[name], asked))
    }
    chooses = plan.rule.policy != NONE and any(map(is_device, asked))
    if (
        chooses
        and undecided.isdisjoint({MEMORY_GROUPS, WHOLE_CORES, SPREAD})
        and _picks_decide(search, plan)
    ):
        undecided.add(PICKS)
    return tuple(sorted(undecided))


def of_refusal(refusal: Refusal, node_info: NodeInfo, plan: Plan) -> tuple[str, ...]:
    """Return the names to show with a refusal; none if no possible state of the kubelet admits the
    pod.
    """
    if refusal.subject == MAY_LIE_IN_ZONES:
        return (UNHEALTHY,)
    if refusal.reason not in DEPENDS_ON_STATE:
        return ()
    may_be_admitted = plan.needs_search or possible(node_info, plan)
    return _undecided_names(node_info, plan) if may_be_admitted else ()


def of_pod(cluster: Cluster, pod: Pod, node: str) -> tuple[str, ...]:
    """Return the names that may matter to the pod on this node; empty if the node is unknown."""
    node_info = cluster.node(node)
    if node_info is None or not node_info.zone_ids:
        return ()
    plan, _ = cluster.evaluator.plan(cluster.evaluator.pod_class(pod), node_info)
    return _undecided_names(node_info, plan)


def _picks_decide(search: KubeletSearch, plan: Plan) -> bool:
    """Return whether, in one state of the kubelet, one choice of devices admits the pod and another
    does not.
    """
    states, request = search.states, plan.request
    if states is None or states.pending or states.ended_pods:
        return False
    try:
        results = [states.model.admit(base, request) for base in states.bases]
    except TooManyChoicesError:
        return True
    return any(result.states and result.refused for result in results)
