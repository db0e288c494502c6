"""The controllers of the simulated cluster: Deployments, ReplicaSets, StatefulSets and Jobs.

Each controller keeps the number of pods that its object requests, and writes its status. They are
simple on purpose: a rollout deletes all pods of the earlier template at once. This module does not
know HTTP, kubelets or schedulers.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from services.simulator.cluster_port import Change, ClusterPort, Json, Stored

KINDS = ("deployments", "replicasets", "statefulsets", "jobs")
PAUSE_S = 0.05
MAX_PODS = 5_000
HASH_LABEL = "pod-template-hash"
_API = {
    "deployments": "apps/v1",
    "replicasets": "apps/v1",
    "statefulsets": "apps/v1",
    "jobs": "batch/v1",
}
_KIND = {
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "jobs": "Job",
}


class Controllers:
    """Reconciles objects when they or their pods change."""

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self._due: dict[tuple[str, str, str], None] = {}
        self._woken = asyncio.Event()
        self._stops: list[Callable[[], None]] = []

    async def run(self) -> None:
        """Work until cancelled."""
        for resource in KINDS:
            self._stops.append(self._cluster.listen(resource, self._listener(resource)))
            for entry in self._cluster.list(resource):
                self._wake(resource, entry.obj)
        self._stops.append(self._cluster.listen("pods", self._wake_owner))
        try:
            while True:
                await self._woken.wait()
                await asyncio.sleep(PAUSE_S)
                self._woken.clear()
                for resource, namespace, name in self._taken():
                    self._reconcile(resource, namespace, name)
        finally:
            for stop in self._stops:
                stop()

    def _listener(self, resource: str) -> Callable[[Change], None]:
        def on_change(change: Change) -> None:
            self._wake(resource, change.entry.obj)
            self._wake_owner(change)

        return on_change

    def _wake_owner(self, change: Change) -> None:
        for owner in change.entry.obj["metadata"].get("ownerReferences") or ():
            resource = next(
                (
                    resource_of_owner
                    for resource_of_owner, kind in _KIND.items()
                    if kind == owner.get("kind")
                ),
                "",
            )
            if resource:
                self._due[resource, change.entry.obj["metadata"]["namespace"], owner["name"]] = None
                self._woken.set()

    def _wake(self, resource: str, obj: Json) -> None:
        self._due[resource, obj["metadata"]["namespace"], obj["metadata"]["name"]] = None
        self._woken.set()

    def _taken(self) -> list[tuple[str, str, str]]:
        due, self._due = list(self._due), {}
        return due

    def _reconcile(self, resource: str, namespace: str, name: str) -> None:
        entry = self._cluster.get(resource, name, namespace)
        if entry is None or entry.obj["metadata"].get("deletionTimestamp"):
            self._collect(resource, namespace, name)
            return
        reconcile = {"deployments": self._deployment, "jobs": self._job}.get(
            resource, self._replicas
        )
        reconcile(resource, entry.obj)

    # -- each kind
    # ----------------------------------------------------------------------------------------------

    def _deployment(self, resource: str, obj: Json) -> None:
        """Keep one ReplicaSet, of the newest template. Earlier ones are deleted with their pods."""
        metadata, spec = obj["metadata"], obj["spec"]
        namespace, name = metadata["namespace"], metadata["name"]
        revision = _hash(spec["template"])
        own_replica_sets = list(
            _owned(self._cluster.list("replicasets", namespace), "Deployment", metadata["uid"])
        )
        current = next(
            (
                replica_set
                for replica_set in own_replica_sets
                if replica_set.obj["metadata"]["name"] == f"{name}-{revision}"
            ),
            None,
        )
        for replica_set in own_replica_sets:
            if replica_set is not current:
                self._cluster.delete("replicasets", replica_set.obj["metadata"]["name"], namespace)
        wanted = _count(spec.get("replicas"))
        if current is None:
            self._cluster.create("replicasets", _replica_set(obj, revision, wanted), namespace)
        elif current.obj["spec"].get("replicas") != wanted:
            patch = {"spec": {"replicas": wanted}}
            self._cluster.patch(
                "replicasets", current.obj["metadata"]["name"], namespace, patch, form="merge"
            )
        status = dict((current.obj.get("status") or {}) if current is not None else {})
        status |= {
            "updatedReplicas": status.get("replicas", 0),
            "observedGeneration": metadata.get("generation", 1),
        }
        available = status.get("availableReplicas", 0) >= wanted
        condition = {
            "type": "Available",
            "status": "True" if available else "False",
            "reason": "MinimumReplicasAvailable",
        }
        progressing = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
        self._status(resource, obj, {**status, "conditions": [condition, progressing]})

    def _replicas(self, resource: str, obj: Json) -> None:
        """Keep as many live pods as requested. A finished pod is replaced."""
        metadata, spec = obj["metadata"], obj["spec"]
        pods = list(
            _owned(
                self._cluster.list("pods", metadata["namespace"]), _KIND[resource], metadata["uid"]
            )
        )
        live = [
            pod for pod in pods if _phase(pod) not in ("Succeeded", "Failed") and not _ending(pod)
        ]
        wanted = _count(spec.get("replicas"))
        for pod in [
            *live[wanted:],
            *(pod for pod in pods if _phase(pod) in ("Succeeded", "Failed")),
        ]:
            self._delete_pod(pod)
        taken = {pod.obj["metadata"]["name"] for pod in pods}
        names = (
            (f"{metadata['name']}-{number}" for number in range(wanted))
            if resource == "statefulsets"
            else None
        )
        for _ in range(wanted - len(live)):
            name = (
                next((free for free in names if free not in taken), "")
                if names is not None
                else None
            )
            if name != "":
                self._make_pod(resource, obj, name)
        ready = sum(_phase(pod) == "Running" for pod in live)
        status = {
            "replicas": len(live),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": len(live),
        }
        if resource == "replicasets":
            status = {**status, "fullyLabeledReplicas": len(live)}
            del status["currentReplicas"]
        self._status(resource, obj, {**status, "observedGeneration": metadata.get("generation", 1)})

    def _job(self, resource: str, obj: Json) -> None:
        """Create pods until enough have succeeded. Failed ones are replaced up to the backoff
        limit.
        """
        metadata, spec, old_status = obj["metadata"], obj["spec"], obj.get("status") or {}
        if any(
            pod.get("type") in ("Complete", "Failed") for pod in old_status.get("conditions") or ()
        ):
            return
        pods = list(
            _owned(self._cluster.list("pods", metadata["namespace"]), "Job", metadata["uid"])
        )
        phases = [_phase(pod) for pod in pods if not _ending(pod)]
        succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
        active = len(phases) - succeeded - failed
        parallel, completions = _count(spec.get("parallelism")), _count(spec.get("completions"))
        status: Json = {
            "active": active,
            "succeeded": succeeded,
            "failed": failed,
            "ready": phases.count("Running"),
        }
        if succeeded >= completions:
            status |= {
                "conditions": [
                    {"type": "Complete", "status": "True", "reason": "CompletionsReached"}
                ]
            }
        elif failed > _count(spec.get("backoffLimit"), 6):
            status |= {
                "conditions": [
                    {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
                ]
            }
        else:
            for _ in range(min(parallel, completions - succeeded) - active):
                self._make_pod(resource, obj, None)
        self._status(resource, obj, {**old_status, **status})

    # -- pods
    # ----------------------------------------------------------------------------------------------

    def _make_pod(self, resource: str, obj: Json, name: str | None) -> None:
        metadata, template = obj["metadata"], obj["spec"]["template"]
        metadata_of_pod = {
            key: value
            for key, value in (template.get("metadata") or {}).items()
            if key in ("labels", "annotations")
        }
        metadata_of_pod |= {"name": name} if name else {"generateName": f"{metadata['name']}-"}
        metadata_of_pod["ownerReferences"] = [_reference(resource, metadata)]
        if resource == "jobs":
            metadata_of_pod["labels"] = {
                "job-name": metadata["name"],
                **metadata_of_pod.get("labels", {}),
            }
        spec = dict(template.get("spec") or {})
        self._cluster.create(
            "pods",
            {"metadata": {**metadata_of_pod, "namespace": metadata["namespace"]}, "spec": spec},
            metadata["namespace"],
        )

    def _delete_pod(self, pod: Stored) -> None:
        metadata = pod.obj["metadata"]
        if not metadata.get("deletionTimestamp"):
            self._cluster.delete(
                "pods", metadata["name"], metadata["namespace"], uid=metadata["uid"]
            )

    def _collect(self, resource: str, namespace: str, name: str) -> None:
        """Delete what a deleted owner has left."""
        kind = _KIND[resource]
        for replica_set in self._cluster.list("replicasets", namespace):
            if resource == "deployments" and any(
                owner.get("kind") == kind and owner.get("name") == name
                for owner in replica_set.obj["metadata"].get("ownerReferences") or ()
            ):
                self._cluster.delete("replicasets", replica_set.obj["metadata"]["name"], namespace)
        for replica_set in self._cluster.list("pods", namespace):
            owners = replica_set.obj["metadata"].get("ownerReferences") or ()
            if any(owner.get("kind") == kind and owner.get("name") == name for owner in owners):
                self._delete_pod(replica_set)

    def _status(self, resource: str, obj: Json, status: Json) -> None:
        shown = {
            key: value for key, value in status.items() if value or key == "observedGeneration"
        }
        if shown != (obj.get("status") or {}):
            metadata = obj["metadata"]
            self._cluster.replace_status(
                resource, metadata["name"], metadata["namespace"], shown, metadata["uid"]
            )


def _owned(entries: Iterable[Stored], kind: str, uid: str) -> Iterable[Stored]:
    for entry in entries:
        owners = entry.obj["metadata"].get("ownerReferences") or ()
        if any(owner.get("kind") == kind and owner.get("uid") == uid for owner in owners):
            yield entry


def _replica_set(deployment: Json, revision: str, replicas: int) -> Json:
    metadata, spec = deployment["metadata"], deployment["spec"]
    template: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(spec["template"]))
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: revision}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
    selector = {**(spec.get("selector") or {})}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: revision}
    owned = {
        "name": f"{metadata['name']}-{revision}",
        "namespace": metadata["namespace"],
        "labels": labels,
        "ownerReferences": [_reference("deployments", metadata)],
    }
    return {
        "metadata": owned,
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


def _reference(resource: str, metadata: Json) -> Json:
    reference = {
        "apiVersion": _API[resource],
        "kind": _KIND[resource],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {**reference, "controller": True, "blockOwnerDeletion": True}


def _hash(template: Json) -> str:
    return hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:10]


def _count(value: object, default: int = 1) -> int:
    return (
        min(MAX_PODS, max(0, value))
        if isinstance(value, int) and not isinstance(value, bool)
        else default
    )


def _phase(entry: Stored) -> str:
    return str((entry.obj.get("status") or {}).get("phase") or "Pending")


def _ending(entry: Stored) -> bool:
    return bool(entry.obj["metadata"].get("deletionTimestamp"))
