"""The resource that a provider refuses although the amounts suffice.

A provider may look at more than amounts. The kubelet model is asked again, once for that resource
alone and once for everything but what its provider gives, under the node's policy and scope. Only
the first moment in which the pod is refused is looked at. This module does not know amounts by zone
or remedies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.demand import ContainerDemand
from shared.domain.policies import NONE, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import is_device
from shared.hints import registry
from shared.hints.admission import KubeletModel, NodeState
from shared.hints.request import request_of
from shared.hints.splits import TooManyChoicesError

Demand = tuple[ContainerDemand, ...]
Refuses = Callable[[Demand], bool]


def unoffered(node_info: NodeInfo, plan: Plan, steps: int) -> Refusal | None:
    """Return the refusal that names the resource; None if another cause decides, or several
    resources together.
    """
    names = tuple(
        dict.fromkeys(
            name for part in plan.demand for name in part.amounts if registry.beyond_amounts(name)
        )
    )
    outlook = kubelet_search_of(node_info, plan) if names else None
    moments_before = outlook.before(steps) if outlook is not None else None
    if outlook is None or outlook.states is None or moments_before is None:
        return None
    rules, moments = (
        outlook.states.model,
        (moment.states for order in moments_before for moment in order.search_states),
    )
    try:
        refuses = _first_refusing(rules, moments, plan.demand)
        return _by_one(node_info, plan, names, refuses) if refuses is not None else None
    except TooManyChoicesError:
        return None


def drawn_by_zeros(node_info: NodeInfo, plan: Plan, steps: int) -> Refusal | None:
    """Return the refusal of a pod that requests 0 of a device, if it would be admitted without that
    request.
    """
    named = [(part.name, name) for part in plan.demand for name in part.zeros if is_device(name)]
    bare = tuple([msgspec.structs.replace(part, zeros=()) for part in plan.demand])
    if (
        plan.rule.policy == NONE
        or not named
        or kubelet_search_of(node_info, plan).result(request_of(bare), steps) != "admitted"
    ):
        return None
    container, name = named[0]
    remedy = (
        f"leave {name} out of the container's limits: the kubelet goes where it is, also "
        "where 0 is asked for"
    )
    return Refusal(node_info.name, no_zone(plan), "beside the rest", name, container, remedy=remedy)


def _first_refusing(
    rules: KubeletModel, moments: Iterator[NodeState], demand: Demand
) -> Refuses | None:
    """Return the refusal of the first moment in which the kubelet refuses the whole demand, if
    there is one.
    """
    by_moment = (partial(_refuses, rules, states) for states in moments)
    return next((refuses for refuses in by_moment if refuses(demand)), None)


def _refuses(rules: KubeletModel, states: NodeState, demand: Demand) -> bool:
    return rules.refuses(states, request_of(demand))


def _by_one(
    node_info: NodeInfo, plan: Plan, names: tuple[str, ...], refuses: Refuses
) -> Refusal | None:
    """It is refused alone, or it is what the rest is refused with."""
    for name in names:
        alone = _only(plan.demand, {name})
        if refuses(alone):
            return _refusal(node_info, plan, name, "", _refused_at(alone, refuses))
    for name in names:
        others = {
            other_name
            for other_name in names
            if registry.owner_of(other_name) == registry.owner_of(name)
        }
        if not refuses(
            _only(
                plan.demand,
                {other_name for part in plan.demand for other_name in part.amounts} - others,
            )
        ):
            return _refusal(
                node_info, plan, name, ", beside the rest", _refused_at(plan.demand, refuses)
            )
    return None


def _only(demand: Demand, names: set[str]) -> Demand:
    return tuple(
        [
            msgspec.structs.replace(
                part, amounts={n: a for n, a in part.amounts.items() if n in names}
            )
            for part in demand
        ]
    )


def _refused_at(demand: Demand, refuses: Refuses) -> int:
    """The first container at which it is refused."""
    return next(index for index in range(len(demand)) if refuses(demand[: index + 1]))


def _refusal(node_info: NodeInfo, plan: Plan, name: str, beside: str, index: int) -> Refusal:
    """Return the refusal for the container, or for the whole pod under scope pod."""
    provider = registry.PROVIDERS[registry.owner_of(name)].name
    if plan.rule.scope == "pod" and plan.rule.policy != NONE:
        index, container, asked = (
            0,
            "",
            dict(request_of(plan.demand).whole[registry.owner_of(name)])[name],
        )
    else:
        part = next(part for part in reversed(plan.demand[: index + 1]) if name in part.amounts)
        container, asked = part.name, part.amounts[name]
    remedy = f"wait until {provider} has some" + (
        " where the rest fits, or ask for less" if beside else ""
    )
    return Refusal(
        node_info.name,
        no_zone(plan),
        f"of those that {provider} offers{beside}",
        name,
        container,
        asked,
        remedy=remedy,
    )


def no_zone(plan: Plan) -> Reason:
    return Reason.NO_SINGLE_ZONE if plan.rule.policy == SINGLE_NUMA_NODE else Reason.NO_ZONE_SET
