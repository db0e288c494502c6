"""ResourceSlices of this process' nodes from the Kubernetes API.

Read at the start, every few minutes, and when a pod holds a device that no slice shows. Scans never
wait for it. Must not know the zone of a device (`slices`), nor how reports are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from services.exporter.answers import ListedPod
from services.exporter.slices import Device, SliceError, devices
from shared.kube.port import Answer, Kube, Lost
from shared.runtime.waiting import set_within

AGAIN_S = 300.0
# The shortest time between two requests for one node.
SOON_S = 5.0
AFTER_FAILURE_S = 30.0
_REMEDIES = {
    401: "check that the service account's token is mounted",
    403: "grant list on resourceslices.resource.k8s.io (k8s/components/exporter-dra)",
    404: "this cluster has no dynamic resource allocation; leave --dra-slices out",
}


class SliceSource:
    """Reads the devices of each node.

    Calls `changed(node)` if a node's devices changed, `on_problem(problem)` at the first failure of
    a row, and with "" at its end.
    """

    def __init__(
        self,
        kube: Kube,
        nodes: Iterable[str],
        changed: Callable[[str], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._kube = kube
        self._nodes = tuple(nodes)
        self._changed = changed
        self._on_problem = on_problem
        self._devices: dict[str, tuple[Device, ...]] = {}
        self._due_s = dict.fromkeys(self._nodes, 0.0)
        self._wanted = asyncio.Event()
        self._failing = False

    def of(self, node: str, pods: Iterable[ListedPod]) -> tuple[Device, ...] | None:
        """Return a node's devices; None before the first answer.

        Requests them soon if a pod holds a device that is not among them.
        """
        node_devices = self._devices.get(node)
        if node_devices is None:
            return None
        names = {(device.driver, device.pool, device.name) for device in node_devices}
        if not _held(pods) <= names:
            soon_s = asyncio.get_running_loop().time() + SOON_S
            if soon_s < self._due_s[node]:
                self._due_s[node] = soon_s
                self._wanted.set()
        return node_devices

    async def run(self) -> None:
        """Read until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            for node in self._nodes:
                if self._due_s[node] <= loop.time():
                    await self.ask(node)
            self._wanted.clear()
            await set_within(self._wanted, max(0.0, min(self._due_s.values()) - loop.time()))

    async def ask(self, node: str) -> None:
        """Read one node's slices."""
        self._due_s[node] = asyncio.get_running_loop().time() + AGAIN_S
        answer = await self._kube.resource_slices(node)
        try:
            if isinstance(answer, Lost) or not answer.ok:
                raise SliceError(_problem(answer))
            node_devices = devices(answer.body.get("items"), node)
        except SliceError as error:
            self._due_s[node] = asyncio.get_running_loop().time() + AFTER_FAILURE_S
            self._report(f"resourceslices of {node}: {error}")
            return
        self._report("")
        if node_devices != self._devices.get(node):
            self._devices[node] = node_devices
            self._changed(node)

    def _report(self, problem: str) -> None:
        if bool(problem) != self._failing:
            self._failing = bool(problem)
            self._on_problem(problem)


def _held(pods: Iterable[ListedPod]) -> set[tuple[str, str, str]]:
    claims = [claim for pod in pods for container in pod.containers for claim in container.claims]
    return {(claim.driver, claim.pool, claim.device) for claim in claims if claim.device}


def _problem(answer: Answer | Lost) -> str:
    if isinstance(answer, Lost):
        return answer.message
    message = " ".join(answer.message[:200].split())
    remedy = _REMEDIES.get(answer.status, "see the API server's message")
    return f"answered {answer.status} {message}; {remedy}"
