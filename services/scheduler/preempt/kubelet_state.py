"""The kubelet's own state, where report and ledger tell it: the kubelet model then answers exactly
who fits once others are gone.

As long as the pod asks for nothing that a provider of one's own hands out. Must not know victims,
priorities or other nodes.
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
from shared.ledger.confirmation import is_included
from shared.ledger.device_views import in_doubt
from shared.ledger.state import LedgerNode


def known_state(node: LedgerNode, pods: Collection[Pod]) -> KubeletState | None:
    """The kubelet's state where every pod is proven and the report leaves nothing open, else None.
    `pods` are the node's.
    """
    if node.report is None or node.basis is not node.report or node.listed is None or node.claims:
        return None
    listed, charges = node.listed, node.charges.values()
    if any(not charge.confirmed or charge.alias is not None for charge in charges):
        return None
    if not all(is_included(charge, listed.get(charge.key, ()), node.report) for charge in charges):
        return None  # it runs, and the report is older: what it keeps is told by nobody
    placements: list[Placement] = [placement for key in sorted(listed) for placement in listed[key]]
    state = observed(msgspec.structs.replace(node.report, placements=tuple(placements)), pods)
    return None if isinstance(state, Open) else state


def kubelet_decides(node_info: NodeInfo, plan: Plan) -> bool:
    """Does the kubelet model answer as the filter does? Not where a provider of one's own is asked,
    nor where a label or an annotation aligns what the kubelet does not, nor where its preference
    hangs on devices that nobody lists or on its version."""
    report, asked = node_info.report, {name for part in plan.demand for name in part.amounts}
    if report is None or not kubelets_own(asked):
        return False
    if not in_doubt(node_info.ledger, plan.rule.policy).isdisjoint(asked):
        return False
    return is_reported(plan.rule, report) and set(node_info.profile.tracked) == set(report.tracked)


def admits(state: KubeletState, pod: Pod, gone: Collection[str] = ()) -> bool:
    """Would this kubelet surely admit the pod once these have ended?"""
    for uid in sorted(gone):
        state = remove(state, uid)
    return admitted_whatever_it_picks(drop_stale(state), pod)


MOST_PICKS = 64
"""Admissions that are looked at for one pod."""

Places = tuple[int | None, ...]
"""The zones of a device, in each resource that has one of its id."""


def admitted_whatever_it_picks(state: KubeletState, pod: Pod) -> bool:
    """False where there are more ways than are looked at, too."""
    found = islice(admissions(state, pod), MOST_PICKS + 1)
    return all(each.admitted and number < MOST_PICKS for number, each in enumerate(found))


def admissions(state: KubeletState, pod: Pod) -> Iterator[Admission]:
    """One admission for each combination of choices, nearly always a single one. Of more than
    MOST_PICKS some may be left out.
    """
    pending: list[tuple[int, ...]] = [()]
    while pending:
        picks = _Picks(state, pending.pop())
        yield admit(state, pod, picks.pick)
        pending += picks.others()


class _Picks:
    """Chooses as the script says, and the first way beyond its end; remembers how many ways there
    were each time.
    """

    def __init__(self, state: KubeletState, script: tuple[int, ...]) -> None:
        self._pools = (
            list(state.devices.registered.values())
            if state.kubelet.config.topology_policy != NONE
            else []
        )
        self._script, self._chosen, self._ways = script, list[int](), list[int]()

    def pick(self, ids: Collection[str], count: int) -> list[str]:
        """So many of these."""
        alike: dict[Places, list[str]] = {}
        for each in sorted(ids):
            alike.setdefault(
                tuple([pool[each].mask for pool in self._pools if each in pool]), []
            ).append(each)
        ways = list(islice(splits(count, [len(group) for group in alike.values()]), MOST_PICKS + 1))
        at = len(self._chosen)
        self._chosen.append(self._script[at] if at < len(self._script) else 0)
        self._ways.append(len(ways))
        taken = ways[self._chosen[at]]
        return [
            each
            for group, number in zip(alike.values(), taken, strict=True)
            for each in group[:number]
        ]

    def others(self) -> Iterator[tuple[int, ...]]:
        """Scripts that part from this one where it had ended."""
        for at in range(len(self._script), len(self._chosen)):
            yield from ((*self._chosen[:at], other) for other in range(1, self._ways[at]))
