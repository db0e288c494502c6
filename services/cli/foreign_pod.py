"""A pod that Kubernetes has and the log does not: most often a pod of another scheduler.

Asks the API for one pod by name; says which scheduler it uses and how to use Topolog for it.
"""

from __future__ import annotations

import msgspec

from shared.kube.client import KubeClient
from shared.kube.port import Answer, KubeUnavailableError

SCHEDULER_NAME = "topolog"


class ForeignPod(msgspec.Struct, frozen=True):
    """The pod as Kubernetes has it."""

    key: str
    uid: str
    scheduler_name: str
    phase: str
    node: str = ""

    def lines(self) -> list[str]:
        """Return its state and what to do."""
        if self.scheduler_name == SCHEDULER_NAME:
            return [
                f"{self.phase} in Kubernetes, uses schedulerName {SCHEDULER_NAME}, "
                "and is not in the log yet",
                "check that the scheduler service runs; "
                "topolog replay log --follow shows the pod when it is observed",
            ]
        name = self.key.partition("/")[2]
        placed = f"placed on {self.node}" if self.node else "not placed on a node"
        return [
            f"{self.phase} in Kubernetes, {placed}",
            f"the pod uses schedulerName: {self.scheduler_name}, so Topolog ignores it",
            f"to use Topolog, set spec.schedulerName: {SCHEDULER_NAME} in its manifest "
            "(in a Deployment: spec.template.spec.schedulerName)",
            f"schedulerName is immutable: delete and recreate the pod (kubectl delete pod {name})",
        ]


async def foreign_pod(pod: str, kubeconfig: str) -> ForeignPod | None:
    """Return the pod as Kubernetes has it; None without a cluster, or without such a pod."""
    if not kubeconfig:
        return None
    namespace, slash, name = pod.partition("/")
    try:
        kube = KubeClient(kubeconfig)
    except KubeUnavailableError:
        return None
    try:
        answer = await kube.get_pod(namespace if slash else "default", name if slash else namespace)
    finally:
        await kube.close()
    if not isinstance(answer, Answer) or not answer.ok:
        return None
    try:
        body = msgspec.convert(answer.body, _Pod)
    except msgspec.ValidationError:
        return None
    return ForeignPod(
        f"{body.metadata.namespace}/{body.metadata.name}",
        body.metadata.uid,
        body.spec.schedulerName,
        body.status.phase,
        body.spec.nodeName,
    )


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Spec(msgspec.Struct):
    schedulerName: str = "default-scheduler"  # noqa: N815  (Kubernetes' own name)
    nodeName: str = ""  # noqa: N815


class _Status(msgspec.Struct):
    phase: str = "Pending"


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)
