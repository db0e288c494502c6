"""Every constraint. A new one is a file next to this one and a line in `_ALL`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    NotHandled,
    RefusalReason,
)
from services.scheduler.filter.constraints.declared_features import DeclaredFeatures
from services.scheduler.filter.constraints.excluded_nodes import ExcludedNodes
from services.scheduler.filter.constraints.given_by_drivers import GivenByDrivers
from services.scheduler.filter.constraints.held_nodes import HeldNodes
from services.scheduler.filter.constraints.host_ports import HostPorts
from services.scheduler.filter.constraints.nominated import Nominated
from services.scheduler.filter.constraints.pod_affinity import PodAffinity, PodAntiAffinity
from services.scheduler.filter.constraints.scheduler_keys import SchedulerKeys
from services.scheduler.filter.constraints.topology_spread import TopologySpread
from services.scheduler.filter.constraints.unusable_resources import UnusableResources
from services.scheduler.filter.constraints.volumes import Volumes
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

_ALL: tuple[Constraint, ...] = (
    ExcludedNodes(),
    HeldNodes(),
    Nominated(),
    DeclaredFeatures(),
    SchedulerKeys(),
    GivenByDrivers(),
    HostPorts(),
    PodAffinity(),
    PodAntiAffinity(),
    TopologySpread(),
    Volumes(),
    UnusableResources(),
)

NEWER_RELEASE = RefusalReason(
    name=Reason.UNSUPPORTED,
    phrase="node(s) had a scheduler that does not support %s",
    remedy="replace this scheduler by the release of the one that observes the cluster",
)


def reasons() -> list[RefusalReason]:
    """Return every reason that a constraint may give, in the order of the checks."""
    return [NEWER_RELEASE, *(reason for constraint in _ALL for reason in constraint.reasons)]


def constrained(pod: Pod, spec: Json) -> Pod:
    """Return the pod with the values that constraints keep of its spec; fields that they handle are
    no longer unsupported. Raises `fields.RefusedError`.
    """
    kept: dict[str, Any] = {}
    handled: set[str] = set()
    for constraint in _ALL:
        try:
            value = constraint.read(spec, pod)
        except NotHandled:
            continue
        handled |= constraint.handles
        if value is not None:
            kept[constraint.name] = value
    unsupported = tuple(name for name in pod.constraints.unsupported if name not in handled)
    if not kept and unsupported == pod.constraints.unsupported:
        return pod
    return msgspec.structs.replace(
        pod,
        constraints=msgspec.structs.replace(pod.constraints, kept=kept, unsupported=unsupported),
    )


class PodChecks:
    """All constraints that concern one pod now. Valid until something changes; false if no node
    can be refused.
    """

    def __init__(
        self, pod: Pod, view: ClusterView, concerned: Sequence[tuple[Constraint, Any]]
    ) -> None:
        self._pod, self._view, self._concerned = pod, view, concerned

    def __bool__(self) -> bool:
        return bool(self._checks)

    @cached_property
    def _checks(self) -> list[Check]:
        checks = [
            constraint.check(self._pod, kept, self._view) for constraint, kept in self._concerned
        ]
        return [check for check in checks if check is not None]

    def refusal(self, node_info: NodeInfo) -> Refusal | None:
        """Return the refusal of the first constraint that refuses the node."""
        for check in self._checks:
            refusal = check(node_info)
            if refusal is not None:
                return refusal
        return None

    def allow(self, node_info: NodeInfo) -> bool:
        """Return whether no constraint refuses the node."""
        return self.refusal(node_info) is None

    def passing(self) -> Bools | None:
        """Return by slot which nodes no constraint refuses; None if no node is refused."""
        passing: Bools | None = None
        for constraint, kept in self._concerned:
            allowed = constraint.passing(self._pod, kept, self._view)
            if allowed is not None:
                passing = allowed if passing is None else passing & allowed
        return passing


def checks_for(pod: Pod, view: ClusterView) -> PodChecks:
    """Return the checks of all constraints. Runs for every decision: a plain loop."""
    kept = pod.constraints.kept
    concerned = list[tuple[Constraint, Any]]()
    if kept and not kept.keys() <= {constraint.name for constraint in _ALL}:
        concerned.append((_NEWER, kept))
    for constraint in _ALL if kept else _of_every_pod(_ALL):
        value = kept.get(constraint.name)
        depends_on = constraint.depends_on
        if value or (depends_on is not None and depends_on(view)):
            concerned.append((constraint, value))
    return PodChecks(pod, view, concerned)


@lru_cache(maxsize=1)
def _of_every_pod(constraints: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    """Return the constraints that may concern a pod of which they kept nothing."""
    return tuple(constraint for constraint in constraints if constraint.depends_on is not None)


class _NewerRelease(Constraint):
    """An observer of a newer release may keep what this release does not know: the pod is for a
    scheduler of that release.
    """

    name = ""
    reasons = (NEWER_RELEASE,)

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check:
        names = sorted(kept.keys() - {constraint.name for constraint in _ALL})
        subject = f"{', '.join(names)}, of a newer release"
        return lambda node_info: NEWER_RELEASE.refusal(node_info.name, subject)


_NEWER = _NewerRelease()
