"""`topolog replay diff`: what is different between two states of the ledger, by node: pods, zones,
charges, verdicts. Pure.

States are compared as `state_at` tells them, so that two histories (of two logs, or of one log and
its restored copy) can be held side by side too. Positions and report versions are no differences:
two histories have their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from services.replay.state_at import node_state
from shared.ledger.digest import digest
from shared.ledger.state import Ledger

_FLAGS = ("policy", "scope", "dirty", "expired", "ready", "locked")
Change = tuple[Any, Any]
Told = tuple[str, str, str, str]


class State(msgspec.Struct, frozen=True):
    """A ledger as values: `nodes` by name, `pods` by uid as (key, stage, node, last verdict)."""

    name: str
    position: int
    hash: str
    nodes: dict[str, dict[str, Any]]
    pods: dict[str, Told]


class NodeDifference(msgspec.Struct, frozen=True):
    """`there` is (before, after) of whether the node is known; `flags` name -> (before, after);
    `zones` "zone 0 cpu surely_free" -> (before, after); `charges` pod -> (before, after) in words,
    "" for none."""

    node: str
    there: tuple[bool, bool] = (True, True)
    flags: dict[str, Change] = {}
    zones: dict[str, tuple[int, int]] = {}
    charges: dict[str, tuple[str, str]] = {}


class PodDifference(msgspec.Struct, frozen=True):
    """Stage, node and verdict as (before, after); "" where the pod is not there."""

    pod: str
    uid: str
    stage: tuple[str, str]
    node: tuple[str, str]
    verdict: tuple[str, str]


class Difference(msgspec.Struct, frozen=True):
    """Everything that is different, nodes by name, pods by key."""

    before: str
    after: str
    positions: tuple[int, int]
    hashes: tuple[str, str]
    nodes: list[NodeDifference]
    pods: list[PodDifference]

    @property
    def differs(self) -> bool:
        """True when anything that counts is different."""
        return bool(self.nodes or self.pods)


def state_of(name: str, ledger: Ledger) -> State:
    """The ledger as values, which later folds do not change."""
    nodes = {each: node_state(ledger, ledger.nodes[each]) for each in sorted(ledger.nodes)}
    pods: dict[str, Told] = {
        uid: (entry.pod.key, entry.stage, entry.node, entry.verdict)
        for uid, entry in ledger.pods.items()
    }
    return State(name, ledger.position, digest(ledger), msgspec.to_builtins(nodes), pods)


def difference(before: State, after: State, node: str = "") -> Difference:
    """All of it, or what concerns one node."""
    names = [node] if node else sorted({*before.nodes, *after.nodes})
    nodes = [
        found
        for name in names
        if (found := _node(name, before.nodes.get(name), after.nodes.get(name))) is not None
    ]
    pods = sorted(_pods(before, after), key=lambda found: (found.pod, found.uid))
    if node:
        pods = [found for found in pods if node in found.node]
    positions, hashes = (before.position, after.position), (before.hash, after.hash)
    return Difference(before.name, after.name, positions, hashes, nodes, pods)


def _node(
    name: str, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> NodeDifference | None:
    one, other = before or {}, after or {}
    found = NodeDifference(
        name,
        (before is not None, after is not None),
        {
            flag: (one.get(flag, ""), other.get(flag, ""))
            for flag in _FLAGS
            if one.get(flag, "") != other.get(flag, "")
        },
        _changes(_amounts(one), _amounts(other), 0),
        _changes(_charges(one), _charges(other), ""),
    )
    return found if found != NodeDifference(name) else None


def _changes(one: Mapping[str, Any], other: Mapping[str, Any], nothing: Any) -> dict[str, Any]:
    keys = dict.fromkeys((*one, *other))
    return {
        key: (one.get(key, nothing), other.get(key, nothing))
        for key in keys
        if one.get(key, nothing) != other.get(key, nothing)
    }


def _amounts(node: Mapping[str, Any]) -> dict[str, int]:
    return {
        f"zone {zone['zone']} {resource} {what}": amount
        for zone in node.get("zones", ())
        for resource, held in zone["resources"].items()
        for what, amount in held.items()
    }


def _charges(node: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{charge['pod']} ({charge['uid']})": _charge(charge) for charge in node.get("charges", ())
    }


def _charge(charge: Mapping[str, Any]) -> str:
    zones = sorted(str(zone) for zone in (charge["held"] or charge["charged"]))
    where = f" zone {', '.join(zones)}" if zones else ""
    return f"{charge['state']}{where}"


def _pods(before: State, after: State) -> list[PodDifference]:
    nothing = ("", "", "", "")
    found = []
    for uid in {*before.pods, *after.pods}:
        one, other = before.pods.get(uid, nothing), after.pods.get(uid, nothing)
        if one != other:
            pairs = list(zip(one, other, strict=True))
            found.append(PodDifference(one[0] or other[0], uid, pairs[1], pairs[2], pairs[3]))
    return found
