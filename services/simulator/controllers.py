"""What makes pods on the simulated cluster: Deployments, ReplicaSets, StatefulSets and Jobs, in a
few lines each.

Each keeps the number of pods that its object asks for and writes its status. A simplification on
purpose: a rollout deletes the pods of the template before at once. Must not know HTTP, kubelets or
schedulers.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from services.simulator.cluster_port import ClusterPort, Json, Seen, Stored

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
    """Hears of objects and pods, and makes them agree."""

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self._due: dict[tuple[str, str, str], None] = {}
        self._woken = asyncio.Event()
        self._stops: list[Callable[[], None]] = []

    async def run(self) -> None:
        """Work until cancelled."""
        for resource in KINDS:
            self._stops.append(self._cluster.listen(resource, self._heard(resource)))
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

    def _heard(self, resource: str) -> Callable[[Seen], None]:
        def heard(change: Seen) -> None:
            self._wake(resource, change.entry.obj)
            self._wake_owner(change)

        return heard

    def _wake_owner(self, change: Seen) -> None:
        for owner in change.entry.obj["metadata"].get("ownerReferences") or ():
            resource = next(
                (found for found, kind in _KIND.items() if kind == owner.get("kind")), ""
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
        found = self._cluster.get(resource, name, namespace)
        if found is None or found.obj["metadata"].get("deletionTimestamp"):
            self._collect(resource, namespace, name)
            return
        reconcile = {"deployments": self._deployment, "jobs": self._job}.get(
            resource, self._replicas
        )
        reconcile(resource, found.obj)

    # -- each kind
    # -----------------------------------------------------------------------------------------------

    def _deployment(self, resource: str, obj: Json) -> None:
        """One ReplicaSet of the newest template; the ones before are deleted with their pods."""
        metadata, spec = obj["metadata"], obj["spec"]
        namespace, name = metadata["namespace"], metadata["name"]
        revision = _hash(spec["template"])
        mine = list(
            _owned(self._cluster.list("replicasets", namespace), "Deployment", metadata["uid"])
        )
        current = next(
            (one for one in mine if one.obj["metadata"]["name"] == f"{name}-{revision}"), None
        )
        for one in mine:
            if one is not current:
                self._cluster.delete("replicasets", one.obj["metadata"]["name"], namespace)
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
        """As many live pods as asked for; a finished one is replaced."""
        metadata, spec = obj["metadata"], obj["spec"]
        pods = list(
            _owned(
                self._cluster.list("pods", metadata["namespace"]), _KIND[resource], metadata["uid"]
            )
        )
        live = [
            one for one in pods if _phase(one) not in ("Succeeded", "Failed") and not _ending(one)
        ]
        wanted = _count(spec.get("replicas"))
        for one in [
            *live[wanted:],
            *(one for one in pods if _phase(one) in ("Succeeded", "Failed")),
        ]:
            self._delete_pod(one)
        taken = {one.obj["metadata"]["name"] for one in pods}
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
        ready = sum(_phase(one) == "Running" for one in live)
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
        """Pods until enough have succeeded; failed ones are made anew up to the backoff limit."""
        metadata, spec, before = obj["metadata"], obj["spec"], obj.get("status") or {}
        if any(one.get("type") in ("Complete", "Failed") for one in before.get("conditions") or ()):
            return
        pods = list(
            _owned(self._cluster.list("pods", metadata["namespace"]), "Job", metadata["uid"])
        )
        phases = [_phase(one) for one in pods if not _ending(one)]
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
        self._status(resource, obj, {**before, **status})

    # -- pods
    # ----------------------------------------------------------------------------------------------------

    def _make_pod(self, resource: str, obj: Json, name: str | None) -> None:
        metadata, template = obj["metadata"], obj["spec"]["template"]
        own = {
            key: value
            for key, value in (template.get("metadata") or {}).items()
            if key in ("labels", "annotations")
        }
        own |= {"name": name} if name else {"generateName": f"{metadata['name']}-"}
        own["ownerReferences"] = [_reference(resource, metadata)]
        if resource == "jobs":
            own["labels"] = {"job-name": metadata["name"], **own.get("labels", {})}
        spec = dict(template.get("spec") or {})
        self._cluster.create(
            "pods",
            {"metadata": {**own, "namespace": metadata["namespace"]}, "spec": spec},
            metadata["namespace"],
        )

    def _delete_pod(self, pod: Stored) -> None:
        metadata = pod.obj["metadata"]
        if not metadata.get("deletionTimestamp"):
            self._cluster.delete(
                "pods", metadata["name"], metadata["namespace"], uid=metadata["uid"]
            )

    def _collect(self, resource: str, namespace: str, name: str) -> None:
        """What an owner that is gone leaves behind."""
        kind = _KIND[resource]
        for one in self._cluster.list("replicasets", namespace):
            if resource == "deployments" and any(
                owner.get("kind") == kind and owner.get("name") == name
                for owner in one.obj["metadata"].get("ownerReferences") or ()
            ):
                self._cluster.delete("replicasets", one.obj["metadata"]["name"], namespace)
        for one in self._cluster.list("pods", namespace):
            owners = one.obj["metadata"].get("ownerReferences") or ()
            if any(owner.get("kind") == kind and owner.get("name") == name for owner in owners):
                self._delete_pod(one)

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
    own = {
        "name": f"{metadata['name']}-{revision}",
        "namespace": metadata["namespace"],
        "labels": labels,
        "ownerReferences": [_reference("deployments", metadata)],
    }
    return {
        "metadata": own,
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
