"""Every constraint that looks beyond the node's own object. A new one is a file beside this one and
a line in `_ALL`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    NotHandled,
)
from services.scheduler.filter.constraints.declared_features import DeclaredFeatures
from services.scheduler.filter.constraints.excluded_nodes import SetAside
from services.scheduler.filter.constraints.given_by_drivers import GivenByDrivers
from services.scheduler.filter.constraints.host_ports import HostPorts
from services.scheduler.filter.constraints.nominated import Nominated
from services.scheduler.filter.constraints.pod_affinity import PodAffinity, PodAntiAffinity
from services.scheduler.filter.constraints.topology_spread import TopologySpread
from services.scheduler.filter.constraints.unusable_resources import UnusableResources
from services.scheduler.filter.constraints.volumes import Volumes
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

_ALL: tuple[Constraint, ...] = (
    SetAside(),
    Nominated(),
    DeclaredFeatures(),
    GivenByDrivers(),
    HostPorts(),
    PodAffinity(),
    PodAntiAffinity(),
    TopologySpread(),
    Volumes(),
    UnusableResources(),
)


def constrained(pod: Pod, spec: Json) -> Pod:
    """The pod with what the constraints keep of its spec; what they handle is unsupported no more.
    Raises `fields.RefusedError`."""
    kept: dict[str, Any] = {}
    handled: set[str] = set()
    for constraint in _ALL:
        try:
            found = constraint.read(spec, pod)
        except NotHandled:
            continue
        handled |= constraint.handles
        if found is not None:
            kept[constraint.name] = found
    unsupported = tuple(name for name in pod.constraints.unsupported if name not in handled)
    if not kept and unsupported == pod.constraints.unsupported:
        return pod
    return msgspec.structs.replace(
        pod,
        constraints=msgspec.structs.replace(pod.constraints, kept=kept, unsupported=unsupported),
    )


class PodChecks:
    """Which nodes these constraints bar for one pod, as things stand; computed node by node, or for
    all at once.
    """

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = checks

    def __bool__(self) -> bool:
        return bool(self._checks)

    def refusal(self, node_info: NodeInfo) -> Refusal | None:
        """The first constraint that bars the node."""
        return next(
            (found for check in self._checks if (found := check(node_info)) is not None), None
        )

    def passing(self, slots: Sequence[NodeInfo | None]) -> npt.NDArray[np.bool_]:
        """True for each slot whose node is not barred."""
        return np.array(
            [node_info is not None and self.refusal(node_info) is None for node_info in slots],
            dtype=np.bool_,
        )


def checks_for(pod: Pod, view: ClusterView) -> PodChecks:
    """All constraints that have something to say about this pod now. Runs for every decision: a
    plain loop.
    """
    kept = pod.constraints.kept
    found = [strange] if kept and (strange := _strange(kept)) is not None else []
    for each in _ALL:
        check = each.check(pod, kept.get(each.name), view)
        if check is not None:
            found.append(check)
    return PodChecks(found)


def _strange(kept: Mapping[str, Any]) -> Check | None:
    """An observer of a newer release keeps what this one does not know: the pod is for a scheduler
    of that release.
    """
    strange = sorted(kept.keys() - {each.name for each in _ALL})
    if not strange:
        return None
    remedy = "replace this scheduler by the release of the one that observes the cluster"
    return lambda node_info: Refusal(
        node_info.name,
        Reason.UNSUPPORTED,
        f"{', '.join(strange)}, of a newer release",
        remedy=remedy,
    )
