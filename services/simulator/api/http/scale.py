"""The scale subresource of workloads, autoscaling/v1: `kubectl scale` and `kubectl autoscale` read
and write it.
"""

from __future__ import annotations

from typing import Any

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.refusals import (
    Refusal,
    bad_request,
    method_not_allowed,
    not_found,
    stale,
)
from services.simulator.api.core.store import Entry
from services.simulator.api.http.negotiate import decoded_body
from services.simulator.api.http.request import Request
from services.simulator.api.http.responses import Answer, refusal_answer, value_answer
from services.simulator.api.http.routes import Target

Json = dict[str, Any]


def answer(store: ClusterStore, target: Target, request: Request) -> Answer:
    """Answer GET, PUT or PATCH of the number of replicas."""
    entry = store.get(target.kind, target.name, target.namespace)
    if entry is None:
        return refusal_answer(not_found(target.kind, target.name))
    if request.method == "GET":
        return value_answer(200, _scale(entry))
    if request.method not in ("PUT", "PATCH"):
        return refusal_answer(method_not_allowed())
    body = decoded_body(target.kind, request.content_type, request.body)
    changed = body if isinstance(body, Refusal) else _changed(store, target.kind, entry, body)
    return (
        refusal_answer(changed)
        if isinstance(changed, Refusal)
        else value_answer(200, _scale(changed))
    )


def _changed(store: ClusterStore, kind: Kind, entry: Entry, body: Any) -> Entry | Refusal:
    spec = body.get("spec") if isinstance(body, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        return bad_request("spec.replicas of a Scale must be a whole number, 0 or more")
    metadata = entry.obj["metadata"]
    wanted = (body.get("metadata") or {}).get("resourceVersion")
    if wanted and wanted != metadata["resourceVersion"]:
        return stale(kind, metadata["name"])
    return store.patch(
        kind,
        metadata["name"],
        metadata["namespace"],
        {"spec": {"replicas": replicas}},
        form="merge",
    )


def _scale(entry: Entry) -> Json:
    metadata, spec, status = (
        entry.obj["metadata"],
        entry.obj.get("spec") or {},
        entry.obj.get("status") or {},
    )
    kept = {
        key: metadata[key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": kept,
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {"replicas": status.get("replicas", 0), "selector": selector},
    }
