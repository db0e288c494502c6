"""Read the pod of a request. kube-scheduler sends the same text with filter and with prioritize, so
the pods that were read last are kept by their text.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.scheduler.filter.pod_manifest import read_pod
from shared.domain.pod import Pod

# A pod of each kube-scheduler is under way at a time.
KEPT = 8
LARGEST_KEPT_BYTES = 65_536

Json = dict[str, Any]


class ReadPod(msgspec.Struct, frozen=True):
    """A pod, or the problem of its manifest. `nominated` is the node on which kube-scheduler evicts
    pods for it, "" for none; `unschedulable`: kube-scheduler has found no node for it before.
    """

    pod: Pod
    problem: str
    nominated: str
    unschedulable: bool


class ReadPods:
    """The pods that were read last, by their text."""

    def __init__(self) -> None:
        self._by_text: dict[bytes, ReadPod] = {}

    def read(self, text: msgspec.Raw) -> ReadPod:
        """Return the pod. Raises MsgspecError, UnicodeDecodeError or RecursionError for a text that
        is no JSON object.
        """
        key = bytes(text)
        kept = self._by_text.pop(key, None)
        read = _read(msgspec.json.decode(key, type=Json)) if kept is None else kept
        if len(key) <= LARGEST_KEPT_BYTES:
            self._by_text[key] = read
            if len(self._by_text) > KEPT:
                del self._by_text[next(iter(self._by_text))]
        return read


def _read(manifest: Json) -> ReadPod:
    pod, problem = read_pod(manifest)
    status = manifest.get("status")
    status = status if isinstance(status, dict) else {}
    unschedulable = any(
        condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        for condition in status.get("conditions") or ()
        if isinstance(condition, dict)
    )
    return ReadPod(pod, problem, str(status.get("nominatedNodeName") or ""), unschedulable)
