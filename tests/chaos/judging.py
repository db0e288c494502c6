"""Check what must hold when the faults are over, in the cluster and in the log: no pod rejected,
doubled or forgotten.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.replay.recomputing import Deciding
from services.replay.rejected import Explained, explained
from services.scheduler.snapshot.config import CycleConfig, Provenance
from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import envelopes_of
from shared.events import streams
from shared.events.cluster_events import PodEnded
from shared.events.quarantine import QuarantinedStreams
from shared.events.scheduling_events import PodReserved
from tests.chaos.looking import Folded, Look
from tests.road.harness import Road, topolog

KUBELETS_NO = ("TopologyAffinityError", "UnexpectedAdmissionError", "OutOf")
OVER = ("Succeeded", "Failed")
SILENT = "the API server does not answer at the end"


def of_the_cluster(last: Look, bound: dict[str, str]) -> list[str]:
    """Return violations that the API server shows. `bound` is uid -> node by the log's newest
    binding. A log that was set back lacks some bindings; `of_the_charges` checks the charges of
    such pods.
    """
    return [SILENT] if last.pods is None else _elsewhere(last.pods, bound)


async def of_the_refused(last: Look, log: EventLog) -> tuple[list[str], list[str]]:
    """Return (violations, excused rejections) of the pods that a kubelet rejected, unless the log
    explains the rejection by an end that was not yet observable. A decision that went with a
    set-back log cannot be judged; one that is decided differently now can.
    """
    broken, remarks = [], []
    for pod in refused(last.pods or []):
        description = f"a kubelet refused {pod['metadata']['name']}: {pod['status']['reason']}"
        explanations = await _explained(log, _uid(pod))
        if explanations is None:
            remarks.append(f"{description}; what it was decided on is not in the log")
        elif explanations.ended:
            remarks.append(f"{description}; beside the end of {', '.join(explanations.ended)}")
        else:
            broken.append(description)
    return broken, remarks


async def _explained(log: EventLog, uid: str) -> Explained | None:
    made, quarantined = None, QuarantinedStreams()
    async for envelope in envelopes_of(log, streams.pod(uid)):
        event = quarantined.event_of(envelope)
        if isinstance(event, PodReserved):
            made = envelope, event
        elif isinstance(event, PodEnded) and event.cause == "rejected" and made is not None:
            return await explained(log, made, envelope, Deciding(CycleConfig(), Provenance()))
    return None if made is None else Explained()


def of_the_charges(first: Look, last: Look, log: Folded) -> list[str]:
    """Compare pods and charges in both directions. The log was read to its end after `last`, so
    long after `first` that it has seen all changes until then: a pod on a node is charged there or
    has ended, and a charged pod that is gone is charged no more.
    """
    if first.pods is None or last.pods is None:
        return [SILENT]
    charged = [(uid, node.name) for node in log.ledger.nodes.values() for uid in node.charges]
    return [
        *_uncharged(first, last, log, set(charged)),
        *_charged_elsewhere(first, last, charged),
        *_leaked(first, log),
    ]


def _uncharged(first: Look, last: Look, log: Folded, charged: set[tuple[str, str]]) -> list[str]:
    uncharged, remaining = [], {_uid(pod) for pod in last.pods or () if _lives(pod)}
    for pod in first.pods or ():
        uid, name, node = _uid(pod), pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        if not node or not _lives(pod) or (uid, node) in charged:
            continue
        if uid not in log.ended:
            uncharged.append(
                f"the API server has {name} on {node}, where the log does not charge it"
            )
        elif uid in remaining and log.ended[uid] <= last.head:
            uncharged.append(
                f"the API server has {name} on {node}, which ended by the log at position "
                f"{log.ended[uid]}"
            )
    return uncharged


def _charged_elsewhere(first: Look, last: Look, charged: list[tuple[str, str]]) -> list[str]:
    pods = {_uid(pod): pod for pod in (*(first.pods or ()), *(last.pods or ()))}
    misplaced = []
    for uid, node in charged:
        on = pods[uid]["spec"].get("nodeName", "") if uid in pods else ""
        if on and on != node:
            misplaced.append(
                f"the log charges {node} for {pods[uid]['metadata']['name']}, which the API "
                f"server has on {on}"
            )
    return misplaced


def _leaked(first: Look, log: Folded) -> list[str]:
    living = {_uid(pod) for pod in first.pods or () if _lives(pod)}
    charges = [
        (node.name, charge)
        for node in log.ledger.nodes.values()
        for charge in node.charges.values()
    ]
    gone = [
        (node, charge)
        for node, charge in charges
        if charge.charged_at <= first.head and charge.uid not in living
    ]
    return [
        f"the log charges {node} for {charge.key} ({charge.uid}), which is gone"
        for node, charge in gone
    ]


def _uid(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["uid"])


def _lives(pod: dict[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") not in OVER


def refused(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pods that a kubelet rejected."""
    return [pod for pod in pods if pod.get("status", {}).get("reason", "").startswith(KUBELETS_NO)]


def _elsewhere(pods: list[dict[str, Any]], bound: dict[str, str]) -> list[str]:
    elsewhere = []
    for pod in pods:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        if uid in bound and node != bound[uid]:
            elsewhere.append(
                f"the log has {pod['metadata']['name']} on {bound[uid]}, the API server on "
                f"{node or 'no node'}"
            )
    return elsewhere


def of_the_workload(road: Road, pods: list[dict[str, Any]] | None) -> list[str]:
    """Return problems by the counters of the simulated cluster: more rejected pods than its API
    server shows, or lost pods.
    """
    counted = road.summary().get("workload", {})
    hidden = counted.get("rejected", 0) - len(refused(pods)) if pods is not None else 0
    hidden_rejections = (
        [f"{hidden} pods rejected that the API server does not show"] if hidden > 0 else []
    )
    return [*hidden_rejections, *([f"{counted['lost']} pods lost"] if counted.get("lost") else [])]


def of_the_log(database_url: str) -> list[str]:
    """Return the invariants of the log that `topolog replay verify` finds violated."""
    done = topolog("replay", "verify", "--database-url", database_url, "--json")
    if done.returncode == 0:
        return []
    try:
        verdict = msgspec.json.decode(done.stdout, type=dict[str, Any])
    except msgspec.MsgspecError:
        return [f"replay verify: {(done.stderr or done.stdout)[-500:]}"]
    return [f"replay verify: {each}" for each in verdict.get("violations", [done.stdout[-500:]])]
