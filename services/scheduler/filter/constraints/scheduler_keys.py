"""Annotations, labels and resources of other schedulers that require something of a node.

`shared/domain/scheduler_keys.py` has every key with its treatment. This constraint keeps the keys
of the pod and refuses nodes that do not do what the keys require. Topology policies and node labels
are not its matter: the node's profile has them (`snapshot/topology_policy.py`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    RefusalReason,
)
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.owned_request import ZONE_KEYS
from services.scheduler.snapshot.topology_policy import gives_full_cores
from shared.domain.demand import zonal_demand
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import CPU
from shared.domain.scheduler_keys import Asked, asked_by, keys_of_pod
from shared.owned.device_request import TYPES

NOT_KEPT = RefusalReason(
    name=Reason.KEY_NOT_KEPT,
    phrase="node(s) could not keep %s",
    remedy="docs/constraints.md says for each key what keeps it",
)


class SchedulerKeys(Constraint):
    """Keeps the pod's keys by place."""

    name = "schedulerKeys"
    reasons = (NOT_KEPT,)

    def read(self, spec: Json, pod: Pod) -> Any:
        return keys_of_pod(pod) or None

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        required = _required(kept)
        if not required:
            return None
        needs = _needs(pod)

        def check(node_info: NodeInfo) -> Refusal | None:
            node = _node(node_info)
            lacking = [asked for asked in required if not _keeps(node, asked, needs)]
            if not lacking:
                return None
            shown = _shown(lacking)
            keys = ", ".join(dict.fromkeys(asked.row.key for asked in lacking))
            remedies = "; ".join(dict.fromkeys(asked.row.remedy for asked in lacking))
            return NOT_KEPT.refusal(node_info.name, keys, shown=shown, remedy=remedies)

        return check

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        required = _required(kept)
        if not required:
            return None
        needs = _needs(pod)
        return view.columns.column(self.name, _node).where(
            lambda node: all(_keeps(node, asked, needs) for asked in required)
        )


class _Node(NamedTuple):
    """What nodes with a report keep: aligned resources, whole physical cores, and, if Topolog
    chooses the zones, all that Koordinator's CPU keys ask for, and devices of some types."""

    tracked: tuple[str, ...]
    gives_full_cores: bool
    is_owned: bool
    device_types: tuple[str, ...]


class _Needs(NamedTuple):
    """Whether every container of a pod gets CPUs of its own, and the types of its devices."""

    exclusive_cpus: bool
    device_types: frozenset[str]


def _node(node_info: NodeInfo) -> _Node | None:
    report, profile = node_info.report, node_info.profile
    if report is None:
        return None
    full_cores, is_owned = gives_full_cores(report), profile.owners.is_owned
    return _Node(report.tracked, full_cores, is_owned, profile.device_types)


def _required(kept: Any) -> list[Asked]:
    return [asked for asked in asked_by(kept) if asked.ask != "preference"]


def _needs(pod: Pod) -> _Needs:
    names = {name for part in pod.containers for name in (*part.requests, *part.limits)}
    types = frozenset(TYPES[name] for name in names & TYPES.keys())
    return _Needs(_requests_exclusive_cpus(pod), types)


def _keeps(node: _Node | None, asked: Asked, needs: _Needs) -> bool:
    if node is None:
        return False
    if node.is_owned and asked.row.key in ZONE_KEYS:
        return True
    if asked.ask in ("scheduler", "gang"):
        return False
    if asked.ask == "device":
        types: Set[str] = needs.device_types
        if asked.row.place == "resource":
            types = {TYPES.get(asked.row.key, "")}
        return types <= set(node.device_types) or asked.row.key in node.tracked
    if not needs.exclusive_cpus or CPU not in node.tracked:
        return False
    return asked.ask == "exclusive CPUs" or node.gives_full_cores


def _requests_exclusive_cpus(pod: Pod) -> bool:
    """Return whether a static CPU Manager gives every container that requests CPUs its own."""
    exclusive = {part.name for part in zonal_demand(pod, (CPU,)) if CPU in part.amounts}
    requesting = {part.name for part in pod.containers if part.requests.get(CPU, 0) > 0}
    return bool(requesting) and requesting <= exclusive


def _shown(lacking: Sequence[Asked]) -> str:
    """Name the keys, those with one remedy together: `pod label a, b (Koordinator): remedy`."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for row, _ in lacking:
        groups.setdefault((row.place, row.reader, row.remedy), {})[row.key] = None
    return "; ".join(
        f"{place} {', '.join(keys)} ({reader}): {remedy}"
        for (place, reader, remedy), keys in groups.items()
    )
