"""Runs one simulated kubelet: keeps its answers and files current, and admits its pods.

This is the shell around `kubelet` for one node. Actions run at the times of an agenda, and `Posts`
carries effects to the cluster. This module does not know the API server, sockets, or other nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from services.simulator import kubelet, kubelet_files, listing
from services.simulator.agenda import Agenda
from services.simulator.kubelet import KubeletNode, Trial
from services.simulator.node_agent import NodeAgent
from shared.domain.pod import Pod
from shared.kubelet.machine import KubeletState


class Delays(msgspec.Struct, frozen=True):
    """Real seconds from the assignment of a pod to its admission (`listed_s`), between two steps of
    the admission, from its result to Running, and from a deletion to the end. A kubelet 1.36 on a
    slow machine needed 0.045 to 0.21 and 0.02 to 0.045 s for the first two.
    """

    listed_s: float = 0.03
    step_s: float = 0.01
    start_s: float = 0.03
    stop_s: float = 0.05


class Posts(Protocol):
    """What a kubelet posts to the cluster."""

    def started(self, pod: Pod) -> None:
        """Post that all containers run."""

    def refused(self, pod: Pod, reason: str, message: str) -> None:
        """Post that the pod was not admitted."""

    def stopped(self, pod: Pod) -> None:
        """Post that a deleted pod has ended."""


class KubeletAgent:
    """One kubelet. `clock_s` is the agenda's clock."""

    def __init__(
        self,
        node: KubeletNode,
        folder: Path,
        delays: Delays,
        agenda: Agenda,
        clock_s: Callable[[], float],
        posts: Posts,
        enforcer: NodeAgent | None = None,
    ) -> None:
        self._enforcer = enforcer
        self._node = node
        self._folder = folder
        self._delays = delays
        self._agenda = agenda
        self._now = clock_s
        self._posts = posts
        self._queue: deque[tuple[str, float]] = deque()
        self._trial: Trial | None = None
        self._stopping: set[str] = set()
        self._messages: dict[str, bytes] = {}
        self._allocatable = listing.allocatable_message(node.state)
        for uid, known_pod in node.pods.items():
            self._list(uid)
            if enforcer is not None:
                enforcer.create(known_pod.pod)
        kubelet_files.save(folder, None, node.state)

    @property
    def node(self) -> KubeletNode:
        """The node as it is now."""
        return self._node

    def knows(self, uid: str) -> bool:
        """Return whether this is an active pod of the node."""
        return uid in self._node.pods

    def list_bytes(self) -> bytes:
        """Return the answer to List. Joined messages of pods are one message."""
        return b"".join(self._messages.values())

    def allocatable_bytes(self) -> bytes:
        """Return the answer to GetAllocatableResources."""
        return self._allocatable

    def pod_bytes(self, namespace: str, name: str) -> bytes | None:
        """Return the answer to Get, None for an unknown pod."""
        for known_pod in self._node.pods.values():
            if (known_pod.pod.namespace, known_pod.pod.name) == (namespace, name):
                return listing.get_message(known_pod.pod, self._node.shown)
        return None

    def assign(self, pod: Pod) -> None:
        """List a pod that was bound to this node, and admit it when its turn comes."""
        self._set_node(kubelet.assign(self._node, pod), pod.uid)
        ready = self._now() + self._delays.listed_s
        self._queue.append((pod.uid, ready))
        if len(self._queue) == 1 and self._trial is None:
            self._agenda.add(ready, self._admit_next)

    def terminate(self, uid: str) -> None:
        """Stop a deleted pod: after a delay if its containers run, otherwise at once."""
        known_pod = self._node.pods.get(uid)
        if known_pod is None or uid in self._stopping:
            return
        if known_pod.phase == "running":
            self._stopping.add(uid)
            self._agenda.add(self._now() + self._delays.stop_s, partial(self._stop, uid))
        else:
            self._stop(uid)

    def end(self, uid: str) -> Pod | None:
        """Remove a pod that ended, and free its resources. Return the pod, None if it was not
        active.
        """
        known_pod = self._node.pods.get(uid)
        if known_pod is None:
            return None
        self._stopping.discard(uid)
        self._messages.pop(uid, None)
        self._set_node(kubelet.end(self._node, uid))
        if self._enforcer is not None:
            self._enforcer.end(uid)
        return known_pod.pod

    def _stop(self, uid: str) -> None:
        known_pod = self._node.pods.get(uid)
        if known_pod is not None:
            self._posts.stopped(known_pod.pod)
            self.end(uid)

    def _admit_next(self) -> None:
        """Begin the admission of the next active pod that has been listed for long enough."""
        while self._trial is None and self._queue:
            uid, ready = self._queue[0]
            if uid in self._node.pods and ready > self._now():
                self._agenda.add(ready, self._admit_next)
                return
            self._queue.popleft()
            if uid in self._node.pods:
                self._begin(uid)

    def _begin(self, uid: str) -> None:
        self._node, self._trial = kubelet.begin(self._node, uid)
        steps = self._trial.steps if self._trial.verdict.admitted else ()
        if len(steps) < 2:
            self._conclude()
            return
        # A kubelet frees ended pods, chooses zones and allocates in one call. No reader sees the
        # state in between, in which ended pods are freed and nothing is allocated yet.
        self._show(steps[0])
        begun_s = self._now()
        for step in steps[1:-1]:
            begun_s += self._delays.step_s
            self._agenda.add(begun_s, partial(self._show, step))
        self._agenda.add(begun_s + self._delays.step_s, self._conclude)

    def _show(self, step: KubeletState) -> None:
        if self._trial is not None:
            self._set_node(kubelet.show(self._node, step), self._trial.uid)

    def _conclude(self) -> None:
        trial = self._trial
        if trial is None:
            return
        self._trial = None
        known_pod = self._node.pods.get(trial.uid)
        self._set_node(kubelet.conclude(self._node, kubelet.rebase(self._node, trial)), trial.uid)
        if known_pod is not None and trial.verdict.admitted:
            problem = self._enforcer.create(known_pod.pod) if self._enforcer is not None else ""
            if problem:
                self._posts.refused(known_pod.pod, "EnforcementRefused", problem)
                self.end(trial.uid)
                self._admit_next()
                return
            self._agenda.add(self._now() + self._delays.start_s, partial(self._run, trial.uid))
        elif known_pod is not None:
            self._posts.refused(known_pod.pod, trial.verdict.reason, trial.verdict.message)
        self._admit_next()

    def _run(self, uid: str) -> None:
        known_pod = self._node.pods.get(uid)
        if known_pod is not None and uid not in self._stopping:
            self._posts.started(known_pod.pod)

    def _set_node(self, node: KubeletNode, changed: str = "") -> None:
        """Replace the node's value: first in the files, then in what podresources shows."""
        old_state, new_state = self._node.shown, node.shown
        self._node = node
        if new_state is not old_state or changed:
            kubelet_files.save(self._folder, old_state, new_state)
        if changed:
            self._list(changed)

    def _list(self, uid: str) -> None:
        known_pod = self._node.pods.get(uid)
        if known_pod is None:
            self._messages.pop(uid, None)
        else:
            self._messages[uid] = listing.pod_message(known_pod.pod, self._node.shown)
