"""The plugin's view of a node's Topology Manager: policy, scope and zone limit, from attributes and
legacy policies.

Precedence is the plugin's: element 0 of `topologyPolicies`, then each valid attribute overrides its
own field; later duplicates win.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from shared.domain.atoi import atoi
from shared.domain.policies import BEST_EFFORT, NONE, POLICIES, RESTRICTED, SCOPES, SINGLE_NUMA_NODE

DEFAULT_MAX_NUMA_NODES = 8
LIMIT_MAX_NUMA_NODES = 1024
_LEGACY = {"SingleNUMANode": SINGLE_NUMA_NODE, "Restricted": RESTRICTED, "BestEffort": BEST_EFFORT}


class TopologyManager(msgspec.Struct, frozen=True):
    """The three settings that the plugin compares and uses."""

    policy: str = NONE
    scope: str = "container"
    max_numa_nodes: int = DEFAULT_MAX_NUMA_NODES


@lru_cache(maxsize=4096)
def topology_manager(
    policies: tuple[str, ...], attributes: tuple[tuple[str, str], ...]
) -> TopologyManager:
    """Return the effective settings. Invalid values are ignored one by one, as upstream does."""
    policy, scope = _legacy(policies[0]) if policies else (NONE, "container")
    limit = DEFAULT_MAX_NUMA_NODES
    for name, value in attributes:
        if name == "topologyManagerPolicy" and value in POLICIES:
            policy = value
        elif name == "topologyManagerScope" and value in SCOPES:
            scope = value
        elif (
            name == "topologyManagerMaxNUMANodes"
            and (number := atoi(value)) is not None
            and number > 1
        ):
            limit = min(number, LIMIT_MAX_NUMA_NODES)
    return TopologyManager(policy, scope, limit)


def _legacy(policy: str) -> tuple[str, str]:
    for suffix, scope in (("ContainerLevel", "container"), ("PodLevel", "pod")):
        if policy.endswith(suffix) and policy.removesuffix(suffix) in _LEGACY:
            return _LEGACY[policy.removesuffix(suffix)], scope
    return NONE, "container"
