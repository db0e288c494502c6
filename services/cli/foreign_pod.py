"""A pod that the log does not know but Kubernetes does: most often another scheduler's, which
nobody noticed.

Asks the API for one pod by name. What is told: whose it is, and how to send it to Topolog.
"""

from __future__ import annotations

import msgspec

from shared.kube.client import KubeClient
from shared.kube.port import Answer, KubeUnavailableError

SCHEDULER_NAME = "topolog"


class ForeignPod(msgspec.Struct, frozen=True):
    """What Kubernetes says of it."""

    key: str
    uid: str
    scheduler_name: str
    phase: str
    node: str = ""

    def lines(self) -> list[str]:
        """What it is, and what to do."""
        if self.scheduler_name == SCHEDULER_NAME:
            return [
                f"{self.phase} in Kubernetes, asks for Topolog, and is not in the log yet",
                "is the scheduler service running? topolog replay log --follow shows it when it is seen",
            ]
        name = self.key.partition("/")[2]
        placed = f", placed on {self.node}" if self.node else ", and no node has it"
        return [
            f"{self.phase} in Kubernetes{placed}",
            f"its schedulerName is {self.scheduler_name}: Topolog does not place it, and nobody told you so",
            f"to send it here: set spec.schedulerName: {SCHEDULER_NAME} in its manifest (of a Deployment: in spec.template.spec) "
            f"and make it anew (kubectl delete pod {name}); the field of a pod that is there cannot be changed",
        ]


async def foreign_pod(pod: str, kubeconfig: str) -> ForeignPod | None:
    """The pod as Kubernetes has it; None without a cluster to ask, or when it has none of that
    name.
    """
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
    return _read(answer.body)


def _read(body: object) -> ForeignPod | None:
    try:
        seen = msgspec.convert(body, _Pod)
    except msgspec.ValidationError:
        return None
    spec = seen.spec
    return ForeignPod(
        f"{seen.metadata.namespace}/{seen.metadata.name}",
        seen.metadata.uid,
        spec.schedulerName,
        seen.status.phase,
        spec.nodeName,
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
