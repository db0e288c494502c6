"""ResourceSlices of this process' nodes from the Kubernetes API: asked at the start, every few
minutes, and when a pod holds a device that none of them shows. Scans never wait for it: what is not
known yet is not known.

Must not know what a device's zone is (`slices`), nor how reports are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from services.exporter.answers import ListedPod
from services.exporter.slices import Device, SliceError, devices
from shared.kube.port import Answer, Kube, Lost
from shared.runtime.waiting import set_within

AGAIN_S = 300.0
SOON_S = 5.0
"""The least time between two questions for one node."""
AFTER_FAILURE_S = 30.0
_REMEDIES = {
    401: "is the service account's token mounted?",
    403: "grant list on resourceslices.resource.k8s.io (k8s/components/exporter-dra)",
    404: "this cluster has no dynamic resource allocation; leave --dra-slices out",
}


class SliceSource:
    """`changed(node)` is called when a node's devices are other than before; `said(problem)` hears
    the first failure of a row, and "" at its end."""

    def __init__(
        self,
        kube: Kube,
        nodes: Iterable[str],
        changed: Callable[[str], None],
        said: Callable[[str], None],
    ) -> None:
        self._kube = kube
        self._nodes = tuple(nodes)
        self._changed = changed
        self._said = said
        self._known: dict[str, tuple[Device, ...]] = {}
        self._due_s = dict.fromkeys(self._nodes, 0.0)
        self._wanted = asyncio.Event()
        self._failing = False

    def of(self, node: str, pods: Iterable[ListedPod]) -> tuple[Device, ...] | None:
        """What is known of a node's devices; None before the first answer. Asks soon where a pod
        holds another one.
        """
        known = self._known.get(node)
        if known is not None and not _held(pods) <= {
            (each.driver, each.pool, each.name) for each in known
        }:
            soon_s = asyncio.get_running_loop().time() + SOON_S
            if soon_s < self._due_s[node]:
                self._due_s[node] = soon_s
                self._wanted.set()
        return known

    async def run(self) -> None:
        """Ask for ever; ends by cancellation."""
        loop = asyncio.get_running_loop()
        while True:
            for node in self._nodes:
                if self._due_s[node] <= loop.time():
                    await self.ask(node)
            self._wanted.clear()
            await set_within(self._wanted, max(0.0, min(self._due_s.values()) - loop.time()))

    async def ask(self, node: str) -> None:
        """Ask for one node's slices."""
        self._due_s[node] = asyncio.get_running_loop().time() + AGAIN_S
        answer = await self._kube.resource_slices(node)
        try:
            if isinstance(answer, Lost) or not answer.ok:
                raise SliceError(_problem(answer))
            found = devices(answer.body.get("items"), node)
        except SliceError as error:
            self._due_s[node] = asyncio.get_running_loop().time() + AFTER_FAILURE_S
            self._tell(f"resourceslices of {node}: {error}")
            return
        self._tell("")
        if found != self._known.get(node):
            self._known[node] = found
            self._changed(node)

    def _tell(self, problem: str) -> None:
        if bool(problem) != self._failing:
            self._failing = bool(problem)
            self._said(problem)


def _held(pods: Iterable[ListedPod]) -> set[tuple[str, str, str]]:
    containers = [each for pod in pods for each in pod.containers if each.claims]
    return {
        (one.driver, one.pool, one.device)
        for each in containers
        for one in each.claims
        if one.device
    }


def _problem(answer: Answer | Lost) -> str:
    if isinstance(answer, Lost):
        return answer.message
    said = " ".join(answer.message[:200].split())
    return f"answered {answer.status} {said}; {_REMEDIES.get(answer.status, 'see what the API server says')}"
