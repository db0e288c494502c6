"""The binding subresource: which pods may be bound, and what a binding changes. This module does
not know HTTP.

Source: recordings C of kube-apiserver 1.36 and pkg/registry/core/pod/storage.
"""

from __future__ import annotations

from typing import Any

from services.simulator.api.core import schema
from services.simulator.api.core.kinds import PODS
from services.simulator.api.core.refusals import Refusal, bad_request, conflict, not_found, refuse
from services.simulator.api.core.store import Entry, Store
from services.simulator.api.core.writes import Moment, namespace_ends

Json = dict[str, Any]

# Labels of a node that its pods get with the binding (PodTopologyLabels, on by default since
# Kubernetes 1.35).
_TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


def bind(
    store: Store, namespace: str, name: str, body: Any, dry_run: bool, moment: Moment
) -> Entry | Refusal:
    """Assign a pod to a node, which need not exist. The Binding's labels and annotations replace
    the pod's, and the node's region and zone replace both.
    """
    if refused := _wrong_body(namespace, name, body) or namespace_ends(
        store, PODS, namespace, name
    ):
        return refused
    pod = store.get("pods", namespace, name)
    if pod is None:
        return not_found(PODS, name)
    metadata = body.get("metadata") or {}
    if unmet := _precondition(pod, metadata):
        return unmet
    if refused := _not_bindable(pod):
        return refused
    node = store.get("nodes", "", body["target"]["name"])
    node_labels = (node.obj["metadata"].get("labels") or {}) if node is not None else {}
    topology = {key: node_labels[key] for key in _TOPOLOGY if key in node_labels}
    given = {**metadata, "labels": {**(metadata.get("labels") or {}), **topology}}
    obj = _bound(pod.obj, body["target"]["name"], given, moment.stamp)
    return Entry(pod.key, obj, pod.version) if dry_run else store.put("pods", pod.key, obj)


def _wrong_body(namespace: str, name: str, body: Any) -> Refusal | None:
    if not isinstance(body, dict):
        return bad_request(
            "the object provided is unrecognized (must be of type Binding): no JSON object"
        )
    if wrong := schema.mistyped("Binding", body):
        return bad_request(f'Binding in version "v1" cannot be handled as a Binding: {wrong}')
    metadata, target = body.get("metadata") or {}, body.get("target") or {}
    if metadata.get("namespace") not in (None, "", namespace):
        return bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if metadata.get("name") != name:
        return bad_request("name in URL does not match name in Binding object")
    if target.get("kind") not in (None, "", "Node"):
        text = (
            f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", '
            '"<empty>"'
        )
        return refuse(500, text)
    return None if target.get("name") else refuse(500, "target.name: Required value")


def _precondition(pod: Entry, metadata: Json) -> Refusal | None:
    """metadata.uid and metadata.resourceVersion of a Binding are preconditions on the pod."""
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    where = (
        "StorageError: invalid object, Code: 4, Key: "
        f"/registry/pods/{pod.key[0]}/{pod.name}, ResourceVersion: 0"
    )
    if uid and uid != pod.uid:
        why = f"UID in precondition: {uid}, UID in object meta: {pod.uid}"
        return conflict(PODS, pod.name, f"{where}, AdditionalErrorMsg: Precondition failed: {why}")
    current = pod.obj["metadata"]["resourceVersion"]
    if version and version != current:
        why = (
            f"ResourceVersion in precondition: {version}, ResourceVersion in object meta: {current}"
        )
        return conflict(PODS, pod.name, f"{where}, AdditionalErrorMsg: Precondition failed: {why}")
    return None


def _not_bindable(pod: Entry) -> Refusal | None:
    spec = pod.obj["spec"]
    why = ""
    if pod.obj["metadata"].get("deletionTimestamp"):
        why = f"pod {pod.name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {pod.name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {pod.name} has non-empty .spec.schedulingGates"
    return conflict(PODS, pod.name, why, label="pods/binding") if why else None


def _bound(pod: Json, node: str, given: Json, stamp: str) -> Json:
    metadata = dict(pod["metadata"])
    for field in ("labels", "annotations"):
        if given.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **given[field]}
    status = {
        key: value for key, value in pod["status"].items() if key != "nominatedNodeName"
    }  # cleared since Kubernetes 1.35
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node},
        "status": with_condition(status, {"type": "PodScheduled", "status": "True"}, stamp),
    }


def with_condition(status: Json, condition: Json, stamp: str) -> Json:
    """Return a pod status with one condition set. Its transition time changes only with its
    status.
    """
    old = next(
        (item for item in status.get("conditions") or [] if item["type"] == condition["type"]), None
    )
    since = (
        old.get("lastTransitionTime") if old and old.get("status") == condition["status"] else stamp
    )
    new = {"lastProbeTime": None, "lastTransitionTime": since, **condition}
    if old is None:
        return {**status, "conditions": [*(status.get("conditions") or []), new]}
    return {**status, "conditions": [new if item is old else item for item in status["conditions"]]}
