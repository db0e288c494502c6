"""`topolog replay diff`: the differences between two states of the ledger, by node: pods, zones,
charges, outcomes. Pure.

States are compared in the form of `state_at`, so that two histories (of two logs, or of a log and
its restored copy) can be compared, too. Positions and report versions are left out, because each
history has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from services.replay.state_at import node_state
from shared.domain.state_hash import state_hash
from shared.ledger.state import Ledger

_FLAGS = ("policy", "scope", "dirty", "expired", "ready", "locked")
Change = tuple[Any, Any]
PodSummary = tuple[str, str, str, str]


class State(msgspec.Struct, frozen=True):
    """A ledger as values: `nodes` by name, packed because two states are kept, `pods` by uid as
    (key, stage, node, last scheduling outcome).
    """

    name: str
    position: int
    hash: str
    nodes: dict[str, bytes]
    pods: dict[str, PodSummary]


class NodeDifference(msgspec.Struct, frozen=True):
    """The differences of one node, as (before, after).

    `is_known` is set if the node is known on one side only. `flags` is by name, `zones` by a text
    such as "zone 0 cpu free_min", `charges` by pod, in words, "" for none.
    """

    node: str
    is_known: tuple[bool, bool] = (True, True)
    flags: dict[str, Change] = {}
    zones: dict[str, tuple[int, int]] = {}
    charges: dict[str, tuple[str, str]] = {}


class PodDifference(msgspec.Struct, frozen=True):
    """Stage, node and outcome as (before, after); "" if the pod is missing."""

    pod: str
    uid: str
    stage: tuple[str, str]
    node: tuple[str, str]
    verdict: tuple[str, str]


class Difference(msgspec.Struct, frozen=True):
    """All differences, nodes by name, pods by key."""

    before: str
    after: str
    positions: tuple[int, int]
    hashes: tuple[str, str]
    nodes: list[NodeDifference]
    pods: list[PodDifference]

    @property
    def differs(self) -> bool:
        return bool(self.nodes or self.pods)


def state_of(name: str, ledger: Ledger) -> State:
    """Return the ledger as values, which later folds do not change."""
    nodes = {
        node_name: msgspec.json.encode(node_state(ledger, ledger.nodes[node_name]))
        for node_name in sorted(ledger.nodes)
    }
    pods: dict[str, PodSummary] = {
        uid: (entry.pod.key, entry.stage, entry.node, entry.verdict)
        for uid, entry in ledger.pods.items()
    }
    return State(name, ledger.position, state_hash(ledger), nodes, pods)


def difference(first: State, second: State, node: str = "") -> Difference:
    """Return all differences, or those of one node."""
    names = [node] if node else sorted({*first.nodes, *second.nodes})
    nodes = [
        change
        for name in names
        if (change := _node(name, first.nodes.get(name), second.nodes.get(name))) is not None
    ]
    pods = sorted(_pods(first, second), key=lambda change: (change.pod, change.uid))
    if node:
        pods = [change for change in pods if node in change.node]
    positions, hashes = (first.position, second.position), (first.hash, second.hash)
    return Difference(first.name, second.name, positions, hashes, nodes, pods)


def _node(name: str, first: bytes | None, second: bytes | None) -> NodeDifference | None:
    old, new = (msgspec.json.decode(packed or b"{}") for packed in (first, second))
    change = NodeDifference(
        name,
        (first is not None, second is not None),
        {
            flag: (old.get(flag, ""), new.get(flag, ""))
            for flag in _FLAGS
            if old.get(flag, "") != new.get(flag, "")
        },
        _changes(_amounts(old), _amounts(new), 0),
        _changes(_charges(old), _charges(new), ""),
    )
    return change if change != NodeDifference(name) else None


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], nothing: Any) -> dict[str, Any]:
    keys = dict.fromkeys((*old, *new))
    return {
        key: (old.get(key, nothing), new.get(key, nothing))
        for key in keys
        if old.get(key, nothing) != new.get(key, nothing)
    }


def _amounts(node: Mapping[str, Any]) -> dict[str, int]:
    return {
        f"zone {zone['zone']} {resource} {what}": amount
        for zone in node.get("zones", ())
        for resource, amounts in zone["resources"].items()
        for what, amount in amounts.items()
    }


def _charges(node: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{charge['pod']} ({charge['uid']})": _charge(charge) for charge in node.get("charges", ())
    }


def _charge(charge: Mapping[str, Any]) -> str:
    zones = sorted(str(zone) for zone in (charge["held"] or charge["charged"]))
    where = f" zone {', '.join(zones)}" if zones else ""
    return f"{charge['state']}{where}"


def _pods(first: State, second: State) -> list[PodDifference]:
    nothing = ("", "", "", "")
    changes = []
    for uid in {*first.pods, *second.pods}:
        old, new = first.pods.get(uid, nothing), second.pods.get(uid, nothing)
        if old != new:
            pairs = list(zip(old, new, strict=True))
            changes.append(PodDifference(old[0] or new[0], uid, pairs[1], pairs[2], pairs[3]))
    return changes
