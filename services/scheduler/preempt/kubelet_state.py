"""The kubelet's exact state, if report and ledger show it: the kubelet model then answers which
pods fit after evictions.

It answers only if the pod requests nothing that a custom provider gives. A kubelet chooses at
random among devices, which may lie in different zones; every choice is tried. Must not know
victims, priorities or other nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

import msgspec

from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from services.scheduler.snapshot.topology_policy import is_reported
from shared.domain.pod import Pod
from shared.domain.policies import NONE
from shared.domain.report import Placement
from shared.hints.registry import kubelets_own
from shared.hints.splits import splits
from shared.kubelet.admission import Admission, admit, drop_stale, remove
from shared.kubelet.machine import KubeletState
from shared.kubelet.observed import Open, observed
from shared.kubelet.versions import admit_alike
from shared.ledger.confirmation import is_included
from shared.ledger.device_views import is_decided
from shared.ledger.kubelet_rules import possible_rules
from shared.ledger.state import LedgerNode


def known_state(node: LedgerNode, pods: Collection[Pod]) -> KubeletState | None:
    """Return the kubelet's state if every pod is confirmed and the report leaves nothing open, else
    None. `pods` are the node's.
    """
    if node.report is None or node.basis is not node.report or node.listed is None or node.claims:
        return None
    listed, charges = node.listed, node.charges.values()
    if any(not charge.confirmed or charge.alias is not None for charge in charges):
        return None
    if not all(is_included(charge, listed.get(charge.key, ()), node.report) for charge in charges):
        return None  # It runs, and the report is older: what it holds is unknown.
    placements: list[Placement] = [placement for key in sorted(listed) for placement in listed[key]]
    rules, *others = possible_rules(node).rules
    if not all(admit_alike(rules, other) for other in others):
        return None
    report = msgspec.structs.replace(node.report, placements=tuple(placements))
    state = observed(report, pods, rules)
    return None if isinstance(state, Open) else state


def kubelet_decides(node_info: NodeInfo, plan: Plan) -> bool:
    """Return whether the kubelet model gives the same answer as the filter.

    It does not if a custom provider is asked, if a label or an annotation aligns what the kubelet
    does not, or if the kubelet's preference depends on devices that no report lists, or on its
    version.
    """
    report, asked = node_info.report, {name for part in plan.demand for name in part.amounts}
    if report is None or not kubelets_own(asked):
        return False
    if not is_decided(node_info.ledger, plan.rule.policy, asked):
        return False
    return is_reported(plan.rule, report) and set(node_info.profile.tracked) == set(report.tracked)


def admits(state: KubeletState, pod: Pod, gone: Collection[str] = ()) -> bool:
    """Return whether this kubelet surely admits the pod once these have ended."""
    for uid in sorted(gone):
        state = remove(state, uid)
    return admitted_whatever_it_picks(drop_stale(state), pod)


# Admissions that are tried for one pod.
MOST_PICKS = 64

# The zones of a device, in each resource that has one of its id.
Places = tuple[int | None, ...]


def admitted_whatever_it_picks(state: KubeletState, pod: Pod) -> bool:
    """Return whether every choice of devices admits the pod; False if there are too many to try."""
    tried = islice(admissions(state, pod), MOST_PICKS + 1)
    return all(result.admitted and number < MOST_PICKS for number, result in enumerate(tried))


def admissions(state: KubeletState, pod: Pod) -> Iterator[Admission]:
    """Yield one admission for each combination of choices, nearly always one. Of more than
    MOST_PICKS some may be left out.
    """
    pending: list[tuple[int, ...]] = [()]
    while pending:
        picks = _Picks(state, pending.pop())
        yield admit(state, pod, picks.pick)
        pending += picks.others()


class _Picks:
    """Chooses by a script, and the first way beyond its end; remembers the number of ways.

    Devices that lie in the same zones are alike (under policy none all of a resource): of those the
    lowest ids are taken."""

    def __init__(self, state: KubeletState, script: tuple[int, ...]) -> None:
        self._pools = (
            list(state.devices.registered.values())
            if state.kubelet.config.topology_policy != NONE
            else []
        )
        self._script, self._chosen, self._ways = script, list[int](), list[int]()

    def pick(self, ids: Collection[str], count: int) -> list[str]:
        """Return so many of these."""
        alike: dict[Places, list[str]] = {}
        for device in sorted(ids):
            places = tuple([pool[device].mask for pool in self._pools if device in pool])
            alike.setdefault(places, []).append(device)
        ways = list(islice(splits(count, [len(group) for group in alike.values()]), MOST_PICKS + 1))
        step = len(self._chosen)
        self._chosen.append(self._script[step] if step < len(self._script) else 0)
        self._ways.append(len(ways))
        picked = list[str]()
        for group, number in zip(alike.values(), ways[self._chosen[step]], strict=True):
            picked += group[:number]
        return picked

    def others(self) -> Iterator[tuple[int, ...]]:
        """Yield the scripts that differ from this one beyond its end."""
        for step in range(len(self._script), len(self._chosen)):
            yield from ((*self._chosen[:step], way) for way in range(1, self._ways[step]))
