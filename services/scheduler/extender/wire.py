"""The wire format of kube-scheduler's HTTP extender (k8s.io/kube-scheduler/extender/v1, recordings
of kube-scheduler 1.36).

Requests have capitalised keys; only HTTP 200 with a JSON body counts as an answer. Of nodes only
names are read. Must not decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Json = dict[str, Any]
# MaxExtenderPriority
HIGHEST_SCORE = 10


class _Metadata(msgspec.Struct):
    name: str = ""


class _Node(msgspec.Struct):
    metadata: _Metadata


class _NodeList(msgspec.Struct):
    items: list[_Node] | None = None


class Asked(msgspec.Struct):
    """ExtenderArgs of filter and prioritize: whole nodes, or names if nodeCacheCapable. The pod is
    not decoded, because prioritize brings the same text as filter (`read_pods`)."""

    pod: msgspec.Raw = msgspec.field(name="Pod")
    nodes: _NodeList | None = msgspec.field(default=None, name="Nodes")
    names: list[str] | None = msgspec.field(default=None, name="NodeNames")

    @property
    def cached(self) -> bool:
        """Kube-scheduler sent names only."""
        return self.names is not None

    def node_names(self) -> list[str]:
        """Return the names of the nodes."""
        if self.names is not None:
            return self.names
        nodes = self.nodes.items if self.nodes is not None else None
        return [node.metadata.name for node in nodes or []]


class Bind(msgspec.Struct):
    """ExtenderBindingArgs."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class _MetaPod(msgspec.Struct):
    uid: str = msgspec.field(name="UID")


class _MetaVictims(msgspec.Struct):
    pods: list[_MetaPod] | None = msgspec.field(default=None, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _PodMetadata(msgspec.Struct):
    uid: str = ""


class _Pod(msgspec.Struct):
    metadata: _PodMetadata


class _Victims(msgspec.Struct):
    pods: list[_Pod] | None = msgspec.field(default=None, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class Offer(msgspec.Struct, frozen=True):
    """The victims on one node, by uid, and how many disruption budgets they violate."""

    uids: tuple[str, ...]
    violations: int = 0


class Preempt(msgspec.Struct):
    """ExtenderPreemptionArgs: whole victims, or uids if nodeCacheCapable."""

    pod: Json = msgspec.field(name="Pod")
    whole: dict[str, _Victims | None] | None = msgspec.field(default=None, name="NodeNameToVictims")
    meta: dict[str, _MetaVictims | None] | None = msgspec.field(
        default=None, name="NodeNameToMetaVictims"
    )

    def offers(self) -> dict[str, Offer]:
        """Return the offers by node name, in either form."""
        offers = {}
        for name, victims in (self.meta or {}).items():
            if victims is not None:
                uids = tuple(pod.uid for pod in victims.pods or ())
                offers[name] = Offer(uids, victims.violations)
        for name, whole in (self.whole or {}).items():
            if whole is not None:
                uids = tuple(pod.metadata.uid for pod in whole.pods or ())
                offers[name] = Offer(uids, whole.violations)
        return offers


asked = msgspec.json.Decoder(Asked).decode
bind = msgspec.json.Decoder(Bind).decode
preempt = msgspec.json.Decoder(Preempt).decode


def filtered(
    passing: Sequence[str], failed: Mapping[str, str], unresolvable: Mapping[str, str], cached: bool
) -> Json:
    """Return an ExtenderFilterResult. Without node cache kube-scheduler reads only `Nodes`."""
    nodes = None if cached else {"items": [{"metadata": {"name": name}} for name in passing]}
    names = list(passing) if cached else None
    return {
        "Nodes": nodes,
        "NodeNames": names,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }


def prioritized(scores: Mapping[str, int]) -> list[Json]:
    """Return a HostPriorityList; `scores` are 0 to 100."""
    return [
        {"Host": name, "Score": (score * HIGHEST_SCORE + 50) // 100}
        for name, score in scores.items()
    ]


def preempted(kept: Mapping[str, Offer]) -> Json:
    """Return an ExtenderPreemptionResult: uids for both forms of the request."""
    return {
        "NodeNameToMetaVictims": {
            name: {
                "Pods": [{"UID": uid} for uid in offer.uids],
                "NumPDBViolations": offer.violations,
            }
            for name, offer in kept.items()
        }
    }


def bound(error: str = "") -> Json:
    """Return an ExtenderBindingResult; an empty error is success."""
    return {"Error": error}
