"""The rules that a node's kubelet may have, by the versions that its Node object and its report
name. Must not know what a rule changes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from shared.kubelet.versions import KubeletRules, any_rules, is_recorded
from shared.ledger.state import LedgerNode


class PossibleRules(NamedTuple):
    """Every rule set that is possible; a decision must be right under each of them.

    `versions` are those of Node object and report, which differ while a node is upgraded; none if
    both are unknown. `hint_zones` and `group_checks` are the rules' values of `device_hint_zones`
    and `memory_group_check`. `is_recorded`: decisions of these versions were recorded.
    """

    versions: tuple[str, ...]
    rules: tuple[KubeletRules, ...]
    hint_zones: frozenset[str]
    group_checks: frozenset[bool]
    is_recorded: bool


def possible_rules(node: LedgerNode) -> PossibleRules:
    """Return the rules that the node's kubelet may have."""
    observed, report = node.observed, node.report
    return _possible(
        observed.kubelet_version if observed is not None else "",
        report.kubelet_version if report is not None else "",
    )


def is_other_version(node: LedgerNode) -> bool:
    """Return True if decisions of the kubelet's version were not recorded, or if the version is
    unknown. A node without a Node object is not judged."""
    return node.observed is not None and not possible_rules(node).is_recorded


@lru_cache(maxsize=1024)
def _possible(observed: str, reported: str) -> PossibleRules:
    versions = tuple([version for version in dict.fromkeys((observed, reported)) if version])
    rules = any_rules(versions)
    return PossibleRules(
        versions,
        rules,
        frozenset([rule.device_hint_zones for rule in rules]),
        frozenset([rule.memory_group_check for rule in rules]),
        bool(versions) and all(is_recorded(version) for version in versions),
    )
