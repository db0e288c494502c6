"""The simulated world of a recorded workload: nodes, arrivals, lifetimes and delays as recorded, if
known.

Values that a history does not have are assumed and counted (`World.notes`). This module does not
know schedulers.
"""

from __future__ import annotations

import math
from collections import Counter

import msgspec

from services.comparison.delays import Delays
from services.comparison.workloads import PodTask, Workload
from services.simulator.workload import Arrival
from services.whatif.machines import Machines, RecordedNode, clones, machines
from services.whatif.recorded import Past, Recorded
from shared.domain.pod import Pod
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved

MS = 0.001


class Changes(msgspec.Struct, frozen=True):
    """Changes to the world: more or fewer nodes, the kubelets' policy and scope ("": as
    recorded).
    """

    nodes: int = 0
    policy: str = ""
    scope: str = ""


class World(msgspec.Struct):
    """`delays` is uid -> kind -> seconds. `notes` are the assumptions, one sentence each."""

    load: Workload
    nodes: tuple[RecordedNode, ...]
    delays: dict[str, dict[str, float]]
    horizon_s: int
    notes: list[str]


class NothingToPlay(ValueError):
    """The history has no machine or no pod."""


class RecordedDelays(Delays):
    """The recorded delays of pods, and drawn delays for what no event shows."""

    def __init__(self, seed: int, recorded: dict[str, dict[str, float]]) -> None:
        super().__init__(seed)
        self._known = recorded

    def draw(self, kind: str, what: str) -> float:
        of_pod = self._known.get(what.partition("/")[0])
        return super().draw(kind, what) if of_pod is None or kind not in of_pod else of_pod[kind]


def world(recorded: Recorded, changes: Changes) -> World:
    """Return the world of a history, with these changes. Raises NothingToPlay."""
    objects = {
        event.name: event for _, _, event in recorded.news if isinstance(event, NodeObserved)
    }
    made = machines(
        {name: recorded.reports[name] for name in recorded.reports if name in objects},
        objects,
        changes.policy,
        changes.scope,
    )
    if not made.nodes:
        raise NothingToPlay(
            "no report of the history tells a machine that a kubelet would start on"
        )
    nodes, news = _nodes(recorded, made, changes.nodes)
    replaced = set(recorded.replaced.values())
    roots = {
        uid: past
        for uid, past in recorded.pods.items()
        if uid not in replaced and not _is_gone(past, nodes)
    }
    tasks = {uid: _task(recorded, uid, past) for uid, past in roots.items()}
    running = tuple(tasks[uid] for uid, past in roots.items() if _runs(recorded, past))
    arrivals = [
        Arrival(max(0.0, (past.seen_us - recorded.begin_us) / 1e6), tasks[uid])
        for uid, past in roots.items()
        if not _runs(recorded, past)
    ]
    if not (running or arrivals):
        raise NothingToPlay("the history holds no pod")
    load = Workload(
        nodes,
        running,
        tuple(sorted(arrivals, key=lambda arrival: arrival.at_s)),
        (),
        "",
        0,
        tuple(news),
    )
    delays = {
        uid: recorded_delays for uid, past in roots.items() if (recorded_delays := _delays(past))
    }
    horizon_s = max(1, math.ceil((recorded.end_us - recorded.begin_us) / 1e6))
    return World(
        load,
        nodes,
        delays,
        horizon_s,
        _notes(recorded, made, len(recorded.pods) - len(roots) - len(replaced)),
    )


def _is_gone(past: Past, nodes: tuple[RecordedNode, ...]) -> bool:
    """Return whether the pod belongs to a node that is left out."""
    return past.bound_by_others and past.node not in {node.name for node in nodes}


def _runs(recorded: Recorded, past: Past) -> bool:
    """Return whether the pod ran, or was about to, when the history begins."""
    return bool(past.node) and 0 < max(past.running_us, past.bound_us) <= recorded.begin_us


def _nodes(
    recorded: Recorded, made: Machines, more: int
) -> tuple[tuple[RecordedNode, ...], list[tuple[float, str, Event]]]:
    kept = {node.name for node in (made.nodes[:more] if more < 0 else made.nodes)}
    nodes = tuple(node for node in made.nodes if node.name in kept)
    if not nodes:
        raise NothingToPlay(f"--nodes {more} leaves no node: the history has {len(made.nodes)}")
    news: list[tuple[float, str, Event]] = []
    copies = clones(made.nodes, more) if more > 0 else []
    for model, copy in copies:
        observed = next(
            event
            for _, _, event in reversed(recorded.news)
            if isinstance(event, NodeObserved) and event.name == model
        )
        news.append((0.0, streams.node(copy.name), _renamed(observed, copy.name)))
    for time_us, stream, event in recorded.news:
        if not isinstance(event, NodeObserved | NodeEnded) or event.name in kept:
            news.append((max(0.0, (time_us - recorded.begin_us) / 1e6), stream, event))
    return (*nodes, *(copy for _, copy in copies)), news


def _renamed(observed: NodeObserved, name: str) -> NodeObserved:
    labels = observed.labels | (
        {"kubernetes.io/hostname": name} if "kubernetes.io/hostname" in observed.labels else {}
    )
    return msgspec.structs.replace(
        observed, name=name, uid=f"uid-{name}", labels=labels, ready=True, unschedulable=False
    )


def _task(recorded: Recorded, uid: str, past: Past) -> PodTask:
    chain = [uid]
    while chain[-1] in recorded.replaced and len(chain) < 1000:
        chain.append(recorded.replaced[chain[-1]])
    pods = [_played(recorded.pods[uid_in_chain].pod) for uid_in_chain in chain]
    last = recorded.pods[chain[-1]]
    lifetime_s = last.lifetime_s if last.lifetime_s is not None else math.inf
    if _runs(recorded, past) and past.ended_us:
        lifetime_s = max(0.0, (past.ended_us - recorded.begin_us) / 1e6)
    waited_in_vain = past.ended_us and not (past.running_us or past.bound_us)
    gives_up_s = (past.ended_us - recorded.begin_us) / 1e6 if waited_in_vain else math.inf
    return PodTask(
        uid,
        (),
        min(lifetime_s, 1e9),
        pods[0],
        tuple(pods[1:]),
        past.node,
        past.bound_by_others,
        gives_up_s,
    )


def _played(pod: Pod) -> Pod:
    """Return the pod without preemption, because the simulation has no evictions."""
    return msgspec.structs.replace(pod, preemption_policy="Never")


def _delays(past: Past) -> dict[str, float]:
    """Return the recorded delays of this pod. The observer's event is the arrival, so the watch has
    no delay.
    """
    delays = {"watch": 0.0, "terminate": 0.0}
    if past.reserved_us and past.bound_us >= past.reserved_us:
        delays["bind"] = (past.bound_us - past.reserved_us) / 1e6
    verdict_us = past.running_us or (past.ended_us if past.rejected else 0)
    if past.bound_us and verdict_us > past.bound_us:
        took_s = (verdict_us - past.bound_us) / 1e6
        delays |= {"kubelet_watch": min(0.01, took_s / 4), "status": min(0.05, took_s / 4)}
        delays["admission"] = max(MS, took_s - delays["kubelet_watch"] - delays["status"])
    return delays


def _notes(recorded: Recorded, made: Machines, gone: int) -> list[str]:
    waited = Counter(
        past.cause for past in recorded.pods.values() if past.ended_us and not past.running_us
    )
    lines = [
        (
            len(recorded.replaced),
            (
                "rejected pods were replaced by a pod of the same kind, which does not count as "
                "an arrival"
            ),
        ),
        (
            recorded.assumed_lifetimes,
            "pods never ran: they are given the median lifetime of their kind",
        ),
        (
            waited["deleted"],
            "pods were deleted before they ran: they are deleted again if they still wait then",
        ),
        (
            len(made.guessed),
            "nodes' reports number no CPUs or devices: these are laid out by number",
        ),
        (gone, "pods are left out with the node that they belong to"),
        (
            recorded.schedulers if recorded.schedulers > 1 else 0,
            "schedulers shared the pods: on each side one decides them all",
        ),
    ]
    notes = [f"{count} {text}" for count, text in lines if count]
    return notes + [
        f"node {name} is left out: no kubelet would start there ({why})"
        for name, why in made.left_out.items()
    ]
