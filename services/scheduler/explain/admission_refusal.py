"""Refusals that amounts by zone do not explain: the kubelet model is asked again about a changed
pod.

1. A hint provider may decide by more than amounts. The model is asked about one resource alone, and
   about all resources except those of one provider.
2. A request of 0 devices draws a pod to zones that have the device. The model is asked about the
   pod without that request.
3. The kubelet places an init container first, and later containers must reuse its CPUs, so they
   must use its zones (kubelet 1.36). The model is asked about the pod without these CPUs.

This module does not know amounts by zone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.demand import ContainerDemand
from shared.domain.policies import NONE, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import CPU, is_device
from shared.hints import registry
from shared.hints.admission import KubeletModel, NodeState
from shared.hints.request import request_of
from shared.hints.splits import TooManyChoicesError

Demand = tuple[ContainerDemand, ...]
Refuses = Callable[[Demand], bool]

WITH_OTHERS = "together with the other resources"


def provider_refusal(node_info: NodeInfo, plan: Plan, steps: int) -> Refusal | None:
    """Return the refusal that names the resource which a provider refuses although its amounts
    suffice; None if another cause decides, or several resources together.

    It describes the first state of the kubelet in which the pod is refused.
    """
    asked = (name for part in plan.demand for name in part.amounts)
    names = tuple(dict.fromkeys(name for name in asked if registry.beyond_amounts(name)))
    search = kubelet_search_of(node_info, plan) if names else None
    exploration = search.exact() if search is not None else None
    orders = exploration.before(steps) if exploration is not None else None
    if search is None or search.states is None or orders is None:
        return None
    node_states = (moment.states for order in orders for moment in order.search_states)
    by_state = (partial(_refuses, search.states.model, state) for state in node_states)
    try:
        refuses = next((refuses for refuses in by_state if refuses(plan.demand)), None)
        return _named_refusal(node_info, plan, names, refuses) if refuses is not None else None
    except TooManyChoicesError:
        return None


def _refuses(model: KubeletModel, state: NodeState, demand: Demand) -> bool:
    return model.refuses(state, request_of(demand))


def _named_refusal(
    node_info: NodeInfo, plan: Plan, names: tuple[str, ...], refuses: Refuses
) -> Refusal | None:
    """Return the refusal of a resource that is refused alone, or without which the rest of the
    demand is admitted.
    """
    for name in names:
        alone = _only(plan.demand, {name})
        if refuses(alone):
            return _resource_refusal(node_info, plan, name, "", _refused_at(alone, refuses))
    for name in names:
        provider = registry.owner_of(name)
        provided = {other for other in names if registry.owner_of(other) == provider}
        requested = {other for part in plan.demand for other in part.amounts}
        if not refuses(_only(plan.demand, requested - provided)):
            index = _refused_at(plan.demand, refuses)
            return _resource_refusal(node_info, plan, name, WITH_OTHERS, index)
    return None


def _only(demand: Demand, names: set[str]) -> Demand:
    """Return the demand reduced to these resources."""
    parts = []
    for part in demand:
        amounts = {name: amount for name, amount in part.amounts.items() if name in names}
        parts.append(msgspec.structs.replace(part, amounts=amounts))
    return tuple(parts)


def _refused_at(demand: Demand, refuses: Refuses) -> int:
    """Return the index of the first container that is refused."""
    return next(index for index in range(len(demand)) if refuses(demand[: index + 1]))


def _resource_refusal(
    node_info: NodeInfo, plan: Plan, name: str, others: str, index: int
) -> Refusal:
    """Return the refusal for the container at the index, or for the whole pod under scope pod."""
    owner = registry.owner_of(name)
    provider = registry.PROVIDERS[owner].name
    if plan.rule.scope == "pod" and plan.rule.policy != NONE:
        container, asked = "", dict(request_of(plan.demand).whole[owner])[name]
    else:
        part = next(part for part in reversed(plan.demand[: index + 1]) if name in part.amounts)
        container, asked = part.name, part.amounts[name]
    subject, remedy = f"that {provider} offers", f"wait until {provider} has some"
    if others:
        subject = f"{subject}, {others}"
        remedy = f"{remedy} in a zone that has room for the other resources, or request less"
    return Refusal(node_info.name, _no_zone(plan), subject, name, container, asked, remedy=remedy)


def zero_request_refusal(node_info: NodeInfo, plan: Plan, steps: int) -> Refusal | None:
    """Return the refusal of a pod that requests 0 of a device, if it would be admitted without that
    request.
    """
    zeros = [(part.name, name) for part in plan.demand for name in part.zeros if is_device(name)]
    if plan.rule.policy == NONE or not zeros:
        return None
    without_zeros = tuple(msgspec.structs.replace(part, zeros=()) for part in plan.demand)
    if not _admits(node_info, plan, without_zeros, steps):
        return None
    container, name = zeros[0]
    remedy = (
        f"remove {name} from the container's limits: the kubelet prefers zones that have it, even "
        "for a request of 0"
    )
    return Refusal(node_info.name, _no_zone(plan), WITH_OTHERS, name, container, remedy=remedy)


def init_container_refusal(node_info: NodeInfo, plan: Plan, steps: int) -> Refusal | None:
    """Return the refusal of a pod that would be admitted if one init container requested no whole
    CPUs; None if that holds for no single init container.
    """
    for part in plan.demand:
        if part.kind != "init" or CPU not in part.amounts:
            continue
        amounts = {name: amount for name, amount in part.amounts.items() if name != CPU}
        without_cpus = msgspec.structs.replace(part, amounts=amounts)
        changed = (without_cpus if demand is part else demand for demand in plan.demand)
        demand = tuple(demand for demand in changed if demand.amounts or demand.zeros)
        if _admits(node_info, plan, demand, steps):
            remedy = (
                f"request a fraction of a CPU in init container {part.name} (for example "
                f"{part.amounts[CPU] - 1}m): the kubelet then pins no CPU for it, and later "
                "containers may use another zone"
            )
            subject = f"init container {part.name} pins the zone of later containers"
            return Refusal(
                node_info.name, _no_zone(plan), subject, container=part.name, remedy=remedy
            )
    return None


def _admits(node_info: NodeInfo, plan: Plan, demand: Demand, steps: int) -> bool:
    return kubelet_search_of(node_info, plan).result(request_of(demand), steps) == "admitted"


def _no_zone(plan: Plan) -> Reason:
    """Return the reason for the policy: no single zone, or no set of zones."""
    return Reason.NO_SINGLE_ZONE if plan.rule.policy == SINGLE_NUMA_NODE else Reason.NO_ZONE_SET
