"""Events about the cluster as the Kubernetes API shows it, appended by the scheduler's observer,
which holds a lease.

Commit ids are `kube/<uid>/<resourceVersion>`, so that the append of a second observer is a
duplicate. If an event that was folded already is new information again, it is appended again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.domain.pod import Pod
from shared.domain.report import ZonedAmount
from shared.domain.resources import Amounts
from shared.events.about import About, AboutNothing, AboutPodOnNode

EndCause = Literal["deleted", "succeeded", "failed", "rejected", "absent_from_list", "moved"]


class Taint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A taint of a node, core/v1."""

    key: str
    value: str = ""
    effect: str = ""


class NodeObserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A node was first seen, or changed in a way that matters to placement. Stream `node/<name>`.

    `kubelet_version` is status.nodeInfo.kubeletVersion (`v1.36.2`), empty in events of schema 1.
    `unhealthy` is the number of devices by which status.capacity exceeds status.allocatable
    (kubelet 1.36, GetCapacity). `declared_features` is status.declaredFeatures: features of the
    kubelet that a pod may need (KEP-5328)."""

    name: str
    uid: str
    resource_version: str = ""
    allocatable: Amounts = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    kubelet_version: str = ""
    unhealthy: Amounts = {}
    declared_features: tuple[str, ...] = ()

    @property
    def about(self) -> About:
        return About(node=self.name)


class NodeEnded(msgspec.Struct, frozen=True, tag=True):
    """The Node object was deleted, so the node takes no pod. Stream `node/<name>`.

    Its pods stay charged until each of them ends by its own event, because the name may come back
    with a kubelet that runs them. `moved`: the node and its pods left for another cell."""

    name: str
    uid: str
    cause: EndCause

    @property
    def about(self) -> About:
        return About(node=self.name)


class PodObserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A pod was first seen, or its spec or its node changed. Stream `pod/<uid>`.

    `node` is spec.nodeName: a bound pod is charged from this event on, whichever scheduler bound
    it. `problem` says why the manifest cannot be scheduled. `started_s` is as in PodRunning.
    `generation` is metadata.generation of that spec, 0 if there is none (before Kubernetes 1.33).
    `placement` has zones by annotation (KAI-Scheduler's numa-placement-observed), for nodes whose
    reports list no pods.
    """

    pod: Pod
    resource_version: str = ""
    node: str = ""
    phase: str = "Pending"
    static: bool = False
    terminating: bool = False
    problem: str = ""
    started_s: int = 0
    generation: int = 0
    placement: tuple[ZonedAmount, ...] = ()

    @property
    def about(self) -> About:
        return About(self.pod.uid, self.node)


class PodRunning(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The kubelet admitted the pod and reports it Running. Stream `pod/<uid>`.

    `started_s` is status.startTime in seconds since the epoch: by the node's clock the pod was
    admitted before that second was over (kubelet 1.36). 0 for unknown."""

    uid: str
    node: str
    resource_version: str = ""
    started_s: int = 0


class PodEnded(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The pod holds nothing any more. Stream `pod/<uid>`.

    It was deleted, it finished, its kubelet rejected it (`rejected`, with the kubelet's `reason`),
    or complete lists lack it (`absent_from_list`): then it keeps its charge as long as the node's
    reports list it. `moved`: another cell has it now, or gets it once it shows so many `hops`.

    `finished_s` is the latest `finishedAt` of its containers (Unix seconds, 0 if unknown): by the
    node's clock the pod held its resources until then (kubelet 1.36)."""

    uid: str
    cause: EndCause
    node: str = ""
    reason: str = ""
    message: str = ""
    resource_version: str = ""
    started_s: int = 0
    finished_s: int = 0
    hops: int = 0


class ClusterListed(AboutNothing, msgspec.Struct, frozen=True, tag=True):
    """All objects of a `kind` (`pods`, `nodes`) were listed for the first time on this timeline, so
    the log includes changes made after a restored backup. Stream `listing/<kind>`."""

    kind: str
    timeline: int


ClusterEvent = NodeObserved | NodeEnded | PodObserved | PodRunning | PodEnded | ClusterListed
