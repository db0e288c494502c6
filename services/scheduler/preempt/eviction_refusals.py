"""Who may not be evicted for now: victims that the API server refused, and pods like them.

No fact tells that a budget was changed, nor that a pod became ready and a budget allows one more:
both are asked for again after a while. Where a disruption budget said no, pods with the same labels
would hear the same; asked one after another, each of a large workload costs a nomination. Volatile:
a restart asks anew. Must not know the log or a clock.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from shared.domain.pod import Pod
from shared.ledger.state import LedgerPod

BUDGET = "disruption budget"
"""Of the API server's words, where a budget and no policy refuses (recordings D of kube-apiserver 1.36)."""
ALIKE_AGAIN_S, ITSELF_AGAIN_S = 10.0, 60.0
"""After so long another pod like the victim is asked for, the victim itself later: it may be the only one a budget guards."""
OF_ONE_POD = frozenset((
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "controller-revision-hash",
    "pod-template-generation",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
))  # fmt: skip
"""Labels that tell pods of one workload apart; budgets do not select by them."""

Alike = tuple[str, frozenset[tuple[str, str]]]


class _Refused(msgspec.Struct):
    """`since_s`: monotonic seconds, None until time was told."""

    alike: Alike
    since_s: float | None = None


class EvictionRefusals:
    """Victims by uid, and kinds of pods."""

    def __init__(self) -> None:
        self._one: dict[str, _Refused] = {}
        self._many: dict[Alike, _Refused] = {}

    def refused(self, pod: Pod, message: str) -> None:
        """The pod may not go."""
        alike = _alike(pod)
        self._one[pod.uid] = _Refused(alike)
        if BUDGET in message:
            self._many[alike] = _Refused(alike)

    def started(self, pod: Pod) -> bool:
        """One more runs: a budget may allow one more of its kind to go. True where one may be asked
        for again.
        """
        if not self._one and not self._many:
            return False
        alike, before = _alike(pod), len(self._one) + len(self._many)
        self._many.pop(alike, None)
        self._one = {uid: each for uid, each in self._one.items() if each.alike != alike}
        return len(self._one) + len(self._many) < before

    def forget(self, uid: str) -> None:
        """The pod is no victim any more."""
        self._one.pop(uid, None)

    def passes(self, now_s: float) -> bool:
        """Time goes on; True where somebody may be asked for again."""
        over = [_over(self._one, now_s, ITSELF_AGAIN_S), _over(self._many, now_s, ALIKE_AGAIN_S)]
        return any(over)

    def spared(self, pods: Mapping[str, LedgerPod], others: Container[str]) -> Container[str]:
        """Whom to spare, `others` too."""
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


def _over(held: dict[Any, _Refused], now_s: float, after_s: float) -> bool:
    for each in held.values():
        each.since_s = now_s if each.since_s is None else each.since_s
    over = [
        key
        for key, each in held.items()
        if each.since_s is not None and now_s - each.since_s >= after_s
    ]
    for key in over:
        del held[key]
    return bool(over)
