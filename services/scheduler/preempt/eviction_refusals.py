"""Pods that may not be evicted for now: victims that the API server refused to evict, and pods like
them.

No event shows that a disruption budget changed, or that a pod became ready and a budget allows one
more eviction, so both are tried again after a while. If a budget refused, pods with the same labels
would get the same answer, and each pod of a large workload would cost a nomination. The state is
volatile: after a restart all are tried again. This module does not know the log or a clock.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from shared.domain.pod import Pod
from shared.ledger.state import LedgerPod

# Part of the API server's message if a budget refuses, not a policy (kube-apiserver 1.36,
# recordings D).
BUDGET = "disruption budget"
# Seconds until the eviction of a similar pod is tried, and of the victim itself, which may be the
# only pod that a budget guards.
ALIKE_AGAIN_S, ITSELF_AGAIN_S = 10.0, 60.0
# Labels that distinguish pods of one workload; budgets do not select by them.
OF_ONE_POD = frozenset(
    (
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "controller-revision-hash",
        "pod-template-generation",
        "pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
    )
)

Alike = tuple[str, frozenset[tuple[str, str]]]


class _Refused(msgspec.Struct):
    """`since_s` is in monotonic seconds, None until the next `passes`."""

    alike: Alike
    since_s: float | None = None


class EvictionRefusals:
    """Refused victims by uid, and kinds of pods by their labels."""

    def __init__(self) -> None:
        self._one: dict[str, _Refused] = {}
        self._many: dict[Alike, _Refused] = {}

    def refused(self, pod: Pod, message: str) -> None:
        """Note that the pod may not be evicted."""
        alike = _alike(pod)
        self._one[pod.uid] = _Refused(alike)
        if BUDGET in message:
            self._many[alike] = _Refused(alike)

    def started(self, pod: Pod) -> bool:
        """Note that one more pod runs, so that its budget may allow an eviction. Return whether an
        eviction may be tried again.
        """
        if not self._one and not self._many:
            return False
        alike, number = _alike(pod), len(self._one) + len(self._many)
        self._many.pop(alike, None)
        self._one = {uid: entry for uid, entry in self._one.items() if entry.alike != alike}
        return len(self._one) + len(self._many) < number

    def forget(self, uid: str) -> None:
        """Forget a pod that is no victim any more."""
        self._one.pop(uid, None)

    def passes(self, now_s: float) -> bool:
        """Note the time. Return whether an eviction may be tried again."""
        victims_expired = _expire(self._one, now_s, ITSELF_AGAIN_S)
        return _expire(self._many, now_s, ALIKE_AGAIN_S) or victims_expired

    def spared(self, pods: Mapping[str, LedgerPod], others: Container[str]) -> Container[str]:
        """Return the uids of pods to spare, `others` included."""
        return _Spared(self._one, self._many, pods, others)


class _Spared:
    def __init__(
        self,
        one: Container[str],
        many: Container[Alike],
        pods: Mapping[str, LedgerPod],
        others: Container[str],
    ) -> None:
        self._one, self._many, self._pods, self._others = one, many, pods, others

    def __contains__(self, uid: object) -> bool:
        if uid in self._one or uid in self._others:
            return True
        entry = self._pods.get(str(uid)) if self._many else None
        return entry is not None and _alike(entry.pod) in self._many


def _alike(pod: Pod) -> Alike:
    return pod.namespace, frozenset(
        label for label in pod.labels.items() if label[0] not in OF_ONE_POD
    )


def _expire(refused: dict[Any, _Refused], now_s: float, after_s: float) -> bool:
    expired = []
    for key, entry in refused.items():
        if entry.since_s is None:
            entry.since_s = now_s
        if now_s - entry.since_s >= after_s:
            expired.append(key)
    for key in expired:
        del refused[key]
    return bool(expired)
