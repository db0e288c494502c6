"""The Kubernetes API of the simulation: the simulated server's object store, driven synchronously,
and the true bindings. Services get `SimKube`: every call is a question to the world, which carries
it out (once, late, or never) by `Api`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from services.simulator import pod_status
from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core.binding import bind
from services.simulator.api.core.eviction import evict
from services.simulator.api.core.kinds import PRIORITIES as PRIORITY_CLASSES
from services.simulator.api.core.refusals import Refusal
from services.simulator.api.core.removal import DeleteOptions
from services.simulator.api.core.store import Change
from services.simulator.api.core.writes import Moment, Options, create
from services.simulator.api.settings import ApiSettings
from services.simulator.cluster import GPU, SimulatedNode
from services.simulator.node_object import device_object, node_object, node_status
from shared.kube.port import Answer, KubeUnavailableError, Listed, WatchEvent
from tests.simulation.fibers import Ask
from tests.simulation.log import SimClock
from tests.simulation.manifests import PRIORITIES

Json = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = "2026-01-01T00:00:00Z"
ENDED = ("Succeeded", "Failed")
# Nodes' clocks run fast, because statuses have whole seconds, and only some steps should share one.
SECOND_MS = 50


def by_the_node(at_ms: int) -> str:
    """Return a time as it is in a pod's status."""
    return (START + timedelta(seconds=at_ms // SECOND_MS)).strftime("%Y-%m-%dT%H:%M:%SZ")


class SimKube:
    """The port as far as the loops use it. `lists` makes the answer of a list when the world
    carries it out.
    """

    def __init__(self, lists: Callable[[str], Listed] | None = None) -> None:
        self._lists = lists

    async def pages(self, kind: str, streamed: bool = False) -> AsyncGenerator[Listed]:
        yield await Ask("list", self._lists, kind)

    async def evict(self, namespace: str, name: str, uid: str, dry_run: bool = False) -> Any:
        return await Ask("evict", namespace, name, uid, dry_run)

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]
    ) -> Any:
        return await Ask("bind", namespace, name, uid, node, annotations)

    async def get_pod(self, namespace: str, name: str) -> Any:
        return await Ask("get_pod", namespace, name)

    async def get_node(self, name: str) -> Any:
        return await Ask("get_node", "", name)

    async def pods_on(self, node: str) -> Any:
        answer = await Ask("pods_on", "", node)
        if not isinstance(answer, Answer):
            raise KubeUnavailableError(f"pods of {node}: no answer")
        return answer.body["items"]

    async def patch_node(self, name: str, patch: Any) -> Any:
        return await Ask("patch_node", "", name, patch)

    async def patch_pod_status(self, namespace: str, name: str, patch: Any) -> Any:
        return await Ask("patch_pod", namespace, name, patch)


class Api:
    """The true objects. `bound` counts bindings by uid; `hear` gets every change of pods and
    nodes.
    """

    def __init__(self, seed: int, clock: SimClock, has_cards: bool = False) -> None:
        moment: Callable[[], datetime] = lambda: START + timedelta(milliseconds=clock.now_ms)  # noqa: E731
        self.store = ClusterStore(ApiSettings(taint_new_nodes=False), clock=moment, seed=seed)
        self._make_priority_classes(moment())
        self.bound: dict[str, list[str]] = {}
        self._pods: tuple[int, list[Json], list[Json]] = (-1, [], [])
        self.hear: list[Callable[[str, WatchEvent], None]] = []
        self.kinds = ("devices", "nodes", "pods") if has_cards else ("nodes", "pods")
        self.store.listen("devices", lambda change: self._changed("devices", change))
        self.store.listen("pods", lambda change: self._changed("pods", change))
        self.store.listen("nodes", lambda change: self._changed("nodes", change))

    def _make_priority_classes(self, now: datetime) -> None:
        """Create the priority classes, without drawing from the seed."""
        for number, (name, value) in enumerate(PRIORITIES.items()):
            body = {"metadata": {"name": name}, "value": value}
            create(
                self.store.core,
                PRIORITY_CLASSES,
                "",
                body,
                Options(),
                Moment(now, str(UUID(int=number)), ""),
            )

    def _changed(self, kind: str, change: Change) -> None:
        seen = WatchEvent(change.kind, change.entry.obj)
        for hear in self.hear:
            hear(kind, seen)

    def listed(self, kind: str) -> Listed:
        """Return a complete list of the current objects."""
        return Listed([entry.obj for entry in self.store.list(kind)], str(self.store.version))

    def pods(self) -> list[Json]:
        """Pod objects that exist, by name."""
        return self._read()[1]

    def live(self) -> list[Json]:
        """Pods that have not ended."""
        return self._read()[2]

    def _read(self) -> tuple[int, list[Json], list[Json]]:
        """Return the version, all pods and the live ones: cached, because every loop reads them at
        every step and changes are rare."""
        if self._pods[0] != self.store.version:
            pods = [entry.obj for entry in self.store.list("pods")]
            live = [pod for pod in pods if pod["status"].get("phase") not in ENDED]
            self._pods = self.store.version, pods, live
        return self._pods

    def pod(self, name: str, uid: str = "") -> Json | None:
        """Return a pod; None if there is none, or if another pod has the name."""
        entry = self.store.get("pods", name, "default")
        return entry.obj if entry is not None and uid in ("", entry.uid) else None

    def by_uid(self, uid: str) -> Json | None:
        """Return a pod."""
        return next((pod for pod in self.pods() if pod["metadata"]["uid"] == uid), None)

    def create(self, manifest: Json) -> str:
        """Create a pod, and return its uid."""
        made = self.store.create("pods", manifest, "default")
        assert not isinstance(made, Refusal), made
        return made.uid

    def delete(self, name: str, uid: str, grace_s: int | None = None) -> None:
        """Delete a pod; harmless when it is gone."""
        self.store.delete("pods", name, "default", grace_s=grace_s, uid=uid)

    def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]
    ) -> Answer:
        """The binding subresource."""
        metadata = {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations}
        body = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
        made = bind(self.store.core, namespace, name, body, False, self.store.moment())
        if isinstance(made, Refusal):
            return Answer(
                made.code, str(made.body.get("reason", "")), str(made.body.get("message", ""))
            )
        self.bound.setdefault(made.uid, []).append(node)
        return Answer(201)

    def nominate(self, uid: str, node: str) -> None:
        """Set the pod's nominated node; "" withdraws it."""
        pod = self.by_uid(uid)
        if pod is not None:
            status = {**pod["status"], "nominatedNodeName": node}
            self.store.replace_status("pods", pod["metadata"]["name"], "default", status, uid)

    def evict(self, namespace: str, name: str, uid: str, dry_run: bool) -> Answer:
        """The eviction subresource."""
        options = DeleteOptions(uid=uid, dry_run=dry_run)
        made = evict(self.store.core, namespace, name, {}, options, self.store.moment())
        if isinstance(made, Refusal):
            return Answer(
                made.code, str(made.body.get("reason", "")), str(made.body.get("message", ""))
            )
        return Answer(201)

    def get_pod(self, namespace: str, name: str) -> Answer:
        """GET of a pod."""
        entry = self.store.get("pods", name, namespace)
        return (
            Answer(404, "NotFound", f'pods "{name}" not found')
            if entry is None
            else Answer(200, body=entry.obj)
        )

    def get_node(self, name: str) -> Answer:
        """GET of a node."""
        entry = self.store.get("nodes", name)
        if entry is None:
            return Answer(404, "NotFound", f'nodes "{name}" not found')
        return Answer(200, body=entry.obj)

    def pods_on(self, name: str) -> Answer:
        """List the pods of a node."""
        return Answer(
            200, body={"items": [pod for pod in self.pods() if pod["spec"].get("nodeName") == name]}
        )

    def patch_node(self, name: str, patch: Any) -> Answer:
        """Apply a JSON patch."""
        made = self.store.patch("nodes", name, "", patch, form="json")
        if isinstance(made, Refusal):
            return Answer(made.code, "", str(made.body.get("message", "")))
        return Answer(200, body=made.obj)

    def patch_pod(self, namespace: str, name: str, patch: Any) -> Answer:
        """Apply a patch of a pod's status."""
        made = self.store.patch(
            "pods", name, namespace, patch, form="strategic", subresource="status"
        )
        if isinstance(made, Refusal):
            return Answer(made.code, "", str(made.body.get("message", "")))
        return Answer(200, body=made.obj)

    def put_node(self, node: SimulatedNode, boot_id: str) -> None:
        """Register a node, or post its status again."""
        if self.store.get("nodes", node.name) is None:
            self.store.create("nodes", node_object(node, boot_id, "10.0.0.1", NOW))
        else:
            self.store.replace_status(
                "nodes", node.name, "", node_status(node, boot_id, "10.0.0.1", NOW)
            )
        if "devices" in self.kinds and node.owned_policy and GPU in node.devices:
            cards = device_object(node)
            if self.store.get("devices", node.name) is None:
                self.store.create("devices", cards)
            else:
                self.store.patch("devices", node.name, "", {"spec": cards["spec"]}, form="merge")

    def label_node(self, name: str, labels: dict[str, str | None]) -> None:
        """Set labels of a node; None removes one."""
        self.store.patch("nodes", name, "", {"metadata": {"labels": labels}}, form="merge")

    def has_node(self, name: str) -> bool:
        """Whether there is such a Node object."""
        return self.store.get("nodes", name) is not None

    def drop_node(self, name: str) -> None:
        """Delete a Node object."""
        self.store.delete("nodes", name)
        if self.store.get("devices", name) is not None:  # as the garbage collector does
            self.store.delete("devices", name)

    def post(self, uid: str, phase: str, at_ms: int, reason: str = "", message: str = "") -> None:
        """Post a pod's status, as its kubelet does. Do nothing if the pod does not exist."""
        pod = self.by_uid(uid)
        if pod is None or pod["status"].get("phase") in ENDED:
            return
        if phase == "Running":
            status = pod_status.running(pod, by_the_node(at_ms), "10.0.0.1", "10.1.0.1")
        elif phase == "Succeeded":
            status = pod_status.succeeded(pod, by_the_node(at_ms))
        else:
            status = pod_status.refused(pod, reason, message, by_the_node(at_ms))
        self.store.replace_status("pods", pod["metadata"]["name"], "default", status, uid)
