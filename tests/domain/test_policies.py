"""Every spelling of a Topology Manager policy that is in use comes to the kubelet's own name."""

from __future__ import annotations

import pytest

from shared.domain.policies import BEST_EFFORT, NONE, POLICIES, RESTRICTED, SINGLE_NUMA_NODE, parse


@pytest.mark.parametrize("name", POLICIES)
def test_the_kubelets_own_names_stay_as_they_are(name: str) -> None:
    assert parse(name) == (name, "")


@pytest.mark.parametrize(
    ("text", "policy_and_scope"),
    [
        ("", (NONE, "")),
        ("None", (NONE, "")),
        ("BestEffort", (BEST_EFFORT, "")),
        (" Restricted ", (RESTRICTED, "")),
        ("SingleNUMANode", (SINGLE_NUMA_NODE, "")),
        ("SingleNUMANodePodLevel", (SINGLE_NUMA_NODE, "pod")),
        ("RestrictedContainerLevel", (RESTRICTED, "container")),
        ("strict", None),
        ("PodLevelRestricted", None),
    ],
)
def test_so_do_those_of_noderesourcetopology_and_koordinator(
    text: str, policy_and_scope: tuple[str, str] | None
) -> None:
    assert parse(text) == policy_and_scope
