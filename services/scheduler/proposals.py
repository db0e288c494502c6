"""Proposals: what the core wants appended. Each becomes one commit; its id makes a repeated proposal a duplicate."""

from __future__ import annotations

import msgspec

from services.scheduler.cycle.outcome import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.domain.resources import Amounts
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.scheduling_facts import NodeCharged, PodReserved, PodVerdictChanged


class Proposal(msgspec.Struct, frozen=True):
    """One commit to be. `uid` and `node` are what to decide again on a conflict ("" for none)."""

    commit_id: str
    drafts: tuple[Draft, ...]
    correlation: str
    causation: int
    uid: str = ""
    node: str = ""


def reservation(
    pod: Pod,
    placed: Placed,
    zones: dict[int, Amounts],
    order: int,
    position: int,
    pod_version: int,
    node_version: int,
) -> Proposal:
    """Reserve: one fact on the pod's stream, one on the node's, both at the versions that the decision saw."""
    reserved = PodReserved(
        uid=pod.uid,
        node=placed.node,
        report_version=placed.report_version,
        based_on=position,
        order=order,
        score=placed.score,
        candidates=placed.candidates,
        predicted=placed.predicted,
    )
    charged = NodeCharged(node=placed.node, uid=pod.uid, zones=zones)
    drafts = (
        Draft(streams.pod(pod.uid), reserved, pod_version),
        Draft(streams.node(placed.node), charged, node_version),
    )
    return Proposal(f"reserve/{pod.uid}/{pod_version}", drafts, pod.uid, position, pod.uid, placed.node)


def verdict(pod: Pod, refused: Unplaceable, position: int, pod_version: int) -> Proposal:
    """A verdict that differs from the pod's last."""
    fact = PodVerdictChanged(
        uid=pod.uid, message=refused.message, counts=refused.counts, detail=refused.detail, based_on=position
    )
    draft = Draft(streams.pod(pod.uid), fact, pod_version)
    return Proposal(f"verdict/{pod.uid}/{pod_version}", (draft,), pod.uid, position, pod.uid)
