"""The wire format of kube-scheduler's HTTP extender (k8s.io/kube-scheduler/extender/v1, recordings
of kube-scheduler 1.36).

Requests carry capitalised keys; only HTTP 200 with a JSON body counts as an answer. Of nodes only
names are read. Must not decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Json = dict[str, Any]
HIGHEST_SCORE = 10
"""MaxExtenderPriority."""


class _Metadata(msgspec.Struct):
    name: str = ""


class _Node(msgspec.Struct):
    metadata: _Metadata


class _NodeList(msgspec.Struct):
    items: list[_Node] | None = None


class Asked(msgspec.Struct):
    """ExtenderArgs of filter and prioritize: full nodes without node cache, names with it."""

    pod: Json = msgspec.field(name="Pod")
    nodes: _NodeList | None = msgspec.field(default=None, name="Nodes")
    names: list[str] | None = msgspec.field(default=None, name="NodeNames")

    @property
    def cached(self) -> bool:
        """Did kube-scheduler send names only?"""
        return self.names is not None

    def node_names(self) -> list[str]:
        """The nodes that are asked about."""
        if self.names is not None:
            return self.names
        return (
            [node.metadata.name for node in (self.nodes.items or [])]
            if self.nodes is not None
            else []
        )


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
    """Whom kube-scheduler would evict from one node, by uid, and how many budgets that violates."""

    uids: tuple[str, ...]
    violations: int = 0


class Preempt(msgspec.Struct):
    """ExtenderPreemptionArgs: whole victims without node cache, uids with it."""

    pod: Json = msgspec.field(name="Pod")
    whole: dict[str, _Victims | None] | None = msgspec.field(default=None, name="NodeNameToVictims")
    meta: dict[str, _MetaVictims | None] | None = msgspec.field(
        default=None, name="NodeNameToMetaVictims"
    )

    def offers(self) -> dict[str, Offer]:
        """Node name -> the offer, in either form."""
        found = {}
        for name, victims in (self.meta or {}).items():
            if victims is not None:
                found[name] = Offer(
                    tuple(pod.uid for pod in victims.pods or ()), victims.violations
                )
        for name, given in (self.whole or {}).items():
            if given is not None:
                found[name] = Offer(
                    tuple(pod.metadata.uid for pod in given.pods or ()), given.violations
                )
        return found


asked = msgspec.json.Decoder(Asked).decode
bind = msgspec.json.Decoder(Bind).decode
preempt = msgspec.json.Decoder(Preempt).decode


def filtered(
    passing: Sequence[str], failed: Mapping[str, str], unresolvable: Mapping[str, str], cached: bool
) -> Json:
    """ExtenderFilterResult. Without node cache kube-scheduler reads `Nodes` only, with their names."""
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
    """HostPriorityList; `scores` are 0..100."""
    return [
        {"Host": name, "Score": (score * HIGHEST_SCORE + 50) // 100}
        for name, score in scores.items()
    ]


def preempted(kept: Mapping[str, Offer]) -> Json:
    """ExtenderPreemptionResult: uids in both forms of the request."""
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
    """ExtenderBindingResult; an empty error is success."""
    return {"Error": error}
