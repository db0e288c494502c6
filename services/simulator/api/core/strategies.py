"""What each kind does to an object on create and on update: fill in, then judge. Must not know
requests or storage.
"""

from __future__ import annotations

import re
from typing import Any

from services.simulator.api.core import (
    events,
    kinds,
    names,
    others,
    pod_rules,
    pods,
    schema,
    workloads,
)
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.refusals import Cause, Refusal, bad_request, invalid

Json = dict[str, Any]


def decode(
    kind: Kind, body: Any, field_validation: str, examined: Json | None = None
) -> tuple[Json, tuple[str, ...]] | Refusal:
    """A request body as an object of `kind`, and warnings. 400 for a wrong kind, type or (under
    Strict) unknown field.

    `examined` is the part to check for unknown fields, if the rest is valid (the patch of a stored
    object).
    """
    if not isinstance(body, dict):
        return _unhandled(
            kind, f"json: cannot unmarshal {_go_type(body)} into Go value of type v1.{kind.kind}"
        )
    if refused := _wrong_kind(kind, body):
        return refused
    examined_body = schema.examine(
        kind, body if examined is None else examined, patch=examined is not None
    )
    if examined_body.wrong_type:
        return _unhandled(kind, examined_body.wrong_type)
    if problem := _malformed(kind, body):
        return _unhandled(kind, problem)
    texts = tuple(f'unknown field "{path}"' for path in examined_body.unknown)
    if texts and field_validation == "Strict":
        return _unhandled(kind, f"strict decoding error: {', '.join(texts)}")
    obj = _without(body, examined_body.unknown)
    metadata = obj.get("metadata") or {}
    obj["metadata"] = {field: value for field, value in metadata.items() if value is not None}
    return obj, texts if field_validation != "Ignore" else ()


def _without(body: Json, unknown: tuple[str, ...]) -> Json:
    """The body without its apiVersion, its kind and its unknown fields."""
    obj = {key: value for key, value in body.items() if key not in ("apiVersion", "kind")}
    for path in unknown:
        steps = re.findall(r"[^.\[\]]+", path)
        obj = _pruned(obj, steps) if steps else obj
    return obj


def _pruned(value: Any, steps: list[str]) -> Any:
    """Return a copy without the value at a path of field names and list indices, or the object if
    there is none.
    """
    head, rest = steps[0], steps[1:]
    if isinstance(value, dict) and head in value:
        if not rest:
            return {key: item for key, item in value.items() if key != head}
        return {**value, head: _pruned(value[head], rest)}
    if (
        isinstance(value, list)
        and head.isascii()
        and head.isdigit()
        and int(head) < len(value)
        and rest
    ):
        index = int(head)
        return [*value[:index], _pruned(value[index], rest), *value[index + 1 :]]
    return value


def _go_type(value: Any) -> str:
    return {str: "string", list: "array", bool: "bool"}.get(type(value), "number")


def _unhandled(kind: Kind, why: str) -> Refusal:
    return bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )


def _wrong_kind(kind: Kind, body: Json) -> Refusal | None:
    given, version = body.get("kind"), body.get("apiVersion")
    if kind.custom and (not given or not version):
        missing = "Kind" if not given else "apiVersion"
        return unrecognized(
            kind, f"Object '{missing}' is missing in '{_echo(body)}' ({_echo(body)})"
        )
    if given not in (None, "", kind.kind):
        inner = f"converting (v1.{given}) to (core.{kind.kind}): unknown conversion"
        return bad_request(f'{given} in version "v1" cannot be handled as a {kind.kind}: {inner}')
    if version not in (None, "", kind.api_version):
        text = (
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )
        return bad_request(text)
    return None


def _echo(body: Json) -> str:
    return str(body).replace("'", '"')[:256]


def unrecognized(kind: Kind, why: str) -> Refusal:
    """400 of a body that is no object of any kind."""
    return bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): {why}")


def _malformed(kind: Kind, body: Json) -> str:
    if kind is kinds.PODS:
        return pod_rules.malformed(body)
    if kind is kinds.RUNTIMES:
        return others.runtime_class_malformed(body)
    return others.lease_malformed(body) if kind is kinds.LEASES else ""


def prepare_new(kind: Kind, obj: Json, stamp: str, *, taint_nodes: bool = True) -> Json | Refusal:
    """The object as it will be stored (metadata still without uid and versions), or 422 with every
    violation.
    """
    full = _filled(kind, obj, stamp, taint_nodes)
    causes = names.metadata_problems(full["metadata"], as_label=kind is kinds.NAMESPACES)
    causes += _own_problems(kind, full)
    return invalid(kind, full["metadata"].get("name") or "", causes) if causes else full


def _filled(kind: Kind, obj: Json, stamp: str, taint_nodes: bool) -> Json:
    if kind is kinds.PODS:
        return pods.with_defaults(obj, stamp)
    if kind is kinds.NODES:
        return others.new_node(obj, add_taint=taint_nodes)
    if kind is kinds.NAMESPACES:
        return others.new_namespace(obj)
    if kind is kinds.BUDGETS:
        return others.new_budget(obj)
    if kind in (kinds.VOLUMES, kinds.CLAIMS):
        return others.new_volume(obj, "Available" if kind is kinds.VOLUMES else "Pending")
    if kind in kinds.WORKLOADS:
        return workloads.with_defaults(kind, obj)
    if kind is kinds.PRIORITIES:
        return others.new_priority_class(obj)
    if kind is kinds.RUNTIMES:
        return others.new_runtime_class(obj)
    if kind.storage == "events":
        return events.with_defaults(events.to_core(obj) if kind is kinds.EVENTS_V1 else obj)
    return obj


def _own_problems(kind: Kind, full: Json) -> list[Cause]:
    if kind is kinds.PODS:
        return pod_rules.problems(full["spec"])
    if kind.storage == "events":
        return events.problems(kind, full)
    if kind is kinds.LEASES:
        return others.lease_problems(full)
    if kind is kinds.BUDGETS:
        return others.budget_problems(full)
    if kind in kinds.WORKLOADS:
        return workloads.problems(kind, full)
    if kind is kinds.PRIORITIES:
        return others.priority_class_problems(full)
    if kind is kinds.RUNTIMES:
        return others.runtime_class_problems(full)
    return others.topology_problems(full) if kind is kinds.TOPOLOGIES else []


def prepare_change(kind: Kind, old: Json, new: Json, subresource: str) -> Json | Refusal:
    """Return the next version of an object. A write of the status changes the status and some
    metadata; any other write does not change the status.
    """
    if subresource == "status":
        return _status_change(kind, old, new)
    full = dict(new)
    if kind.has_status:
        full.pop("status", None)
        if "status" in old:
            full["status"] = old["status"]
    if kind is kinds.PODS and full.get("spec") is not old["spec"]:
        full["spec"] = (
            old["spec"]
            if full.get("spec") == old["spec"]
            else pods.changed_spec(old["spec"], full.get("spec") or {})
        )
    causes = _change_problems(kind, old, full)
    name = old["metadata"]["name"]
    return invalid(kind, name, causes) if causes else full


def _status_change(kind: Kind, old: Json, new: Json) -> Json:
    metadata = dict(old["metadata"])
    for field in ("labels", "annotations", "managedFields"):
        metadata.pop(field, None)
        if new["metadata"].get(field):
            metadata[field] = new["metadata"][field]
    status = new.get("status") or {}
    if kind is kinds.PODS:
        status = pods.complete_status(
            {**status, "qosClass": old["status"].get("qosClass", "BestEffort")}
        )
    elif kind is kinds.NODES:
        status = others.node_status(status)
    return {**old, "metadata": metadata, "status": status}


def _change_problems(kind: Kind, old: Json, full: Json) -> list[Cause]:
    causes = []
    if full["metadata"].get("labels") != old["metadata"].get("labels") or full["metadata"].get(
        "annotations"
    ) != old["metadata"].get("annotations"):
        causes = names.metadata_problems(full["metadata"], as_label=kind is kinds.NAMESPACES)
    if kind is kinds.PODS:
        return causes + pod_rules.immutability(old["spec"], full["spec"])
    if kind.storage == "events":
        return causes
    return causes + _own_problems(kind, full)
