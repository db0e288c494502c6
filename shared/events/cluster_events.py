"""Facts about the cluster as the Kubernetes API shows it, appended by the scheduler's leased
observer role.

Commit ids are `kube/<uid>/<resourceVersion>`, so that a second observer's append is a duplicate,
not a second fact; one that its teller had folded, and finds to be news again, is told again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.domain.pod import Pod
from shared.domain.resources import Amounts
from shared.events.about import About

EndCause = Literal["deleted", "succeeded", "failed", "rejected", "absent_from_list"]


class Taint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A taint of a node, core/v1."""

    key: str
    value: str = ""
    effect: str = ""


class NodeObserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A node was first seen or changed in a way that placement depends on. Stream `node/<name>`.

    `kubelet_version` is status.nodeInfo.kubeletVersion (`v1.36.2`), empty in facts of schema 1.
    `unhealthy` is how many devices status.capacity has beyond status.allocatable: the kubelet
    offers healthy ones, and counts all (kubelet 1.36, GetCapacity). `declared_features` is
    status.declaredFeatures: what its kubelet can do that a pod may need (KEP-5328).
    """

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
    """The node object is gone: it takes no pod. Its pods stay charged until each of them ends by
    its own fact, since the name may come back before they are deleted, and its kubelet then runs
    them. Stream `node/<name>`."""

    name: str
    uid: str
    cause: EndCause

    @property
    def about(self) -> About:
        return About(node=self.name)


class PodObserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A pod was first seen, or its spec or its node changed. Stream `pod/<uid>`.

    `node` is spec.nodeName: a pod seen bound is charged from this fact on, whoever bound it.
    `problem` names why the manifest cannot be scheduled (an unparsable quantity, an unsupported
    constraint), empty when it can. `started_s` as in PodRunning. `generation` is
    metadata.generation of that spec, 0 where none is told (before Kubernetes 1.33).
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

    @property
    def about(self) -> About:
        return About(self.pod.uid, self.node)


class PodRunning(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The kubelet admitted the pod and reports it Running. Stream `pod/<uid>`.

    `started_s` is status.startTime in seconds since the epoch, cut off as the API does: by the
    node's clock the pod was admitted before that second was over (kubelet 1.36: the status manager
    notes it with the first status, after admission). 0: unknown."""

    uid: str
    node: str
    resource_version: str = ""
    started_s: int = 0

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class PodEnded(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The pod holds nothing any more: deleted, finished, refused by its kubelet (`rejected`, with
    the kubelet's `reason`), or absent from a complete list. Stream `pod/<uid>`.

    `finished_s` is the latest `finishedAt` of its containers in seconds since the epoch, cut off as
    the API does: by the node's clock the pod held what it had until then (kubelet 1.36: it is
    active until its last container has ended). 0: unknown."""

    uid: str
    cause: EndCause
    node: str = ""
    reason: str = ""
    message: str = ""
    resource_version: str = ""
    started_s: int = 0
    finished_s: int = 0

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class ClusterListed(msgspec.Struct, frozen=True, tag=True):
    """All that the API server has of a `kind` (`pods`, `nodes`) was told, for the first time on
    this timeline: what came about after the backup that was restored is known from here on. Stream
    `listing/<kind>`."""

    kind: str
    timeline: int

    @property
    def about(self) -> About:
        return About()


ClusterEvent = NodeObserved | NodeEnded | PodObserved | PodRunning | PodEnded | ClusterListed
