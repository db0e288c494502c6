"""One request on a collection or object: from query and body to the store's rules, and back to
bytes. No rules of its own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core import kinds, schema, tables
from services.simulator.api.core.binding import bind
from services.simulator.api.core.eviction import evict
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.reads import Page, ReadOptions, page
from services.simulator.api.core.refusals import (
    BOUND,
    Refusal,
    bad_request,
    deleted_status,
    method_not_allowed,
    not_found,
    too_large_version,
)
from services.simulator.api.core.removal import Deleted, DeleteOptions, delete
from services.simulator.api.core.selectors import Selection, selection
from services.simulator.api.core.store import Entry
from services.simulator.api.core.views import item_bytes, object_bytes
from services.simulator.api.core.writes import Options, Written, create, patch, update
from services.simulator.api.http import scale, simulated
from services.simulator.api.http.negotiate import Form, decoded_body, patch_form
from services.simulator.api.http.request import Request
from services.simulator.api.http.responses import Answer, json_answer, refusal_answer, value_answer
from services.simulator.api.http.routes import Target

Json = dict[str, Any]


def answer(store: ClusterStore, target: Target, request: Request, form: Form) -> Answer:
    """Carry out a request that is not a watch."""
    if target.subresource in ("binding", "eviction"):
        return _post_only(store, target, request)
    if target.subresource in simulated.SUBRESOURCES:
        return simulated.answer(store, target)
    if target.subresource == "scale":
        return scale.answer(store, target, request)
    if target.kind.custom and target.subresource not in ("", *target.kind.subresources):
        return refusal_answer(not_found(target.kind, target.name))
    handler = (_ON_OBJECT if target.name else _ON_COLLECTION).get(request.method)
    if handler is None or (target.subresource and request.method in ("DELETE", "POST")):
        if target.kind.custom and request.method == "POST":
            return _post(store, target, request, form)
        return refusal_answer(method_not_allowed())
    return handler(store, target, request, form)


def chosen_by(target: Target, request: Request) -> Selection | Refusal:
    """The selection of a list, watch or deletecollection."""
    query = request.query
    selected = query.get("fieldSelector", "")
    if target.name and target.watching:
        selected = f"metadata.name={target.name}"
    return selection(target.kind, target.namespace, query.get("labelSelector", ""), selected)


def read_options(request: Request) -> ReadOptions:
    """Version, page and watch-list parameters."""
    query = request.query
    return ReadOptions(
        query.get("resourceVersion", ""),
        query.get("resourceVersionMatch", ""),
        request.number("limit"),
        query.get("continue", ""),
        request.flag("sendInitialEvents"),
    )


def _list(store: ClusterStore, target: Target, request: Request, form: Form) -> Answer:
    chosen = chosen_by(target, request)
    if isinstance(chosen, Refusal):
        return refusal_answer(chosen)
    page_of_list = page(store.core, target.kind, chosen, read_options(request))
    if isinstance(page_of_list, Refusal):
        return refusal_answer(page_of_list)
    metadata: Json = {"resourceVersion": str(page_of_list.version)}
    if page_of_list.token:
        metadata["continue"] = page_of_list.token
        if page_of_list.remaining is not None:
            metadata["remainingItemCount"] = page_of_list.remaining
    return _shaped_list(store, target.kind, page_of_list, metadata, request, form)


def _shaped_list(
    store: ClusterStore,
    kind: Kind,
    page_of_list: Page,
    metadata: Json,
    request: Request,
    form: Form,
) -> Answer:
    if form.shape == "Table":
        include = request.query.get("includeObject", "Metadata")
        body = tables.table(kind, page_of_list.entries, store.moment().now, include, metadata)
        return value_answer(200, body, as_yaml=form.as_yaml)
    if form.shape == "PartialObjectMetadata":
        body = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
        }
        return value_answer(
            200,
            {**body, "items": [tables.partial(entry) for entry in page_of_list.entries]},
            as_yaml=form.as_yaml,
        )
    return json_answer(200, list_bytes(kind, page_of_list.entries, metadata), as_yaml=form.as_yaml)


def list_bytes(kind: Kind, entries: list[Entry], metadata: Json) -> bytes:
    """A List from already encoded objects."""
    head = f'{{"kind":"{kind.kind}List","apiVersion":"{kind.api_version}","metadata":'.encode()
    items = b",".join([item_bytes(kind, entry) for entry in entries])
    return head + msgspec.json.encode(metadata) + b',"items":[' + items + b"]}"


def _get(store: ClusterStore, target: Target, request: Request, form: Form) -> Answer:
    version = request.number("resourceVersion")
    if version > store.version:
        return refusal_answer(too_large_version(version, store.version))
    entry = store.core.get(target.kind.storage, target.namespace, target.name)
    if entry is None:
        return refusal_answer(not_found(target.kind, target.name))
    return _one(store, target.kind, 200, entry, request, form)


def _one(
    store: ClusterStore, kind: Kind, code: int, entry: Entry, request: Request, form: Form,
    warnings: tuple[str, ...] = (),
) -> Answer:  # fmt: skip
    if form.shape == "Table":
        metadata = {"resourceVersion": entry.obj["metadata"].get("resourceVersion", "")}
        include = request.query.get("includeObject", "Metadata")
        return value_answer(
            code,
            tables.table(kind, [entry], store.moment().now, include, metadata),
            as_yaml=form.as_yaml,
        )
    if form.shape == "PartialObjectMetadata":
        return value_answer(code, tables.partial(entry), as_yaml=form.as_yaml)
    return json_answer(code, object_bytes(kind, entry), warnings, as_yaml=form.as_yaml)


def _written(
    store: ClusterStore, kind: Kind, result: Written | Refusal, request: Request, form: Form
) -> Answer:
    if isinstance(result, Refusal):
        return refusal_answer(result)
    return _one(store, kind, result.code, result.entry, request, form, result.warnings)


def _options(store: ClusterStore, request: Request) -> Options:
    query = request.query
    return Options(
        query.get("dryRun") == "All",
        query.get("fieldValidation", "Warn"),
        query.get("fieldManager", ""),
        request.flag("force"),
        store.settings.taint_new_nodes,
    )


def _post(store: ClusterStore, target: Target, request: Request, form: Form) -> Answer:
    body = decoded_body(target.kind, request.content_type, request.body)
    if isinstance(body, Refusal):
        return refusal_answer(body)
    made = create(
        store.core, target.kind, target.namespace, body, _options(store, request), store.moment()
    )
    if target.name and not isinstance(made, Refusal):
        return refusal_answer(method_not_allowed())
    return _written(store, target.kind, made, request, form)


def _put(store: ClusterStore, target: Target, request: Request, form: Form) -> Answer:
    body = decoded_body(target.kind, request.content_type, request.body)
    if isinstance(body, Refusal):
        return refusal_answer(body)
    options = _options(store, request)
    where = (target.kind, target.namespace, target.name)
    result = update(store.core, *where, body, target.subresource, options, store.moment())
    return _written(store, target.kind, result, request, form)


def _patch(store: ClusterStore, target: Target, request: Request, form: Form) -> Answer:
    how = patch_form(target.kind, request.content_type)
    if isinstance(how, Refusal):
        return refusal_answer(how)
    body = decoded_body(target.kind, request.content_type, request.body)
    if isinstance(body, Refusal):
        return refusal_answer(body)
    options = _options(store, request)
    where = (target.kind, target.namespace, target.name)
    result = patch(store.core, *where, body, how, target.subresource, options, store.moment())
    return _written(store, target.kind, result, request, form)


def _delete_options(request: Request, body: Any) -> DeleteOptions | Refusal:
    if wrong := schema.mistyped("DeleteOptions", body):
        return bad_request(
            f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: {wrong}'
        )
    given: Json = body or {}
    unmet = given.get("preconditions") or {}
    grace = given.get("gracePeriodSeconds")
    if grace is None and "gracePeriodSeconds" in request.query:
        grace = request.number("gracePeriodSeconds")
    dry = request.query.get("dryRun") == "All" or "All" in (given.get("dryRun") or [])
    return DeleteOptions(
        grace if isinstance(grace, int) else None,
        str(unmet.get("uid") or ""),
        str(unmet.get("resourceVersion") or ""),
        dry,
    )


def _delete(store: ClusterStore, target: Target, request: Request, form: Form) -> Answer:
    body = decoded_body(target.kind, request.content_type, request.body) if request.body else {}
    if isinstance(body, Refusal):
        return refusal_answer(body)
    options = _delete_options(request, body)
    if isinstance(options, Refusal):
        return refusal_answer(options)
    result = delete(store.core, target.kind, target.namespace, target.name, options, store.moment())
    if isinstance(result, Refusal):
        return refusal_answer(result)
    return _deleted(store, target, result, request, form)


def _deleted(
    store: ClusterStore, target: Target, result: Deleted, request: Request, form: Form
) -> Answer:
    """Pods and namespaces, and whatever stays, answer with the object; the rest with a Status."""
    if target.kind in (kinds.PODS, kinds.NAMESPACES) or not result.is_removed:
        return _one(store, target.kind, 200, result.entry, request, form)
    return value_answer(200, deleted_status(target.kind, target.name, result.entry.uid))


def _delete_collection(store: ClusterStore, target: Target, request: Request, form: Form) -> Answer:
    chosen = chosen_by(target, request)
    if isinstance(chosen, Refusal):
        return refusal_answer(chosen)
    body = decoded_body(target.kind, request.content_type, request.body) if request.body else {}
    if isinstance(body, Refusal):
        return refusal_answer(body)
    options = _delete_options(request, body)
    if isinstance(options, Refusal):
        return refusal_answer(options)
    page_of_list = page(store.core, target.kind, chosen, ReadOptions())
    entries = [] if isinstance(page_of_list, Refusal) else page_of_list.entries
    metadata: Json = {"resourceVersion": str(store.version)}
    for entry in entries:
        delete(store.core, target.kind, entry.key[0], entry.name, options, store.moment())
    return json_answer(200, list_bytes(target.kind, entries, metadata), as_yaml=form.as_yaml)


def _post_only(store: ClusterStore, target: Target, request: Request) -> Answer:
    """The binding and eviction subresources."""
    if request.method != "POST":
        return refusal_answer(method_not_allowed())
    body = decoded_body(target.kind, request.content_type, request.body)
    if isinstance(body, Refusal):
        return refusal_answer(body)
    if target.subresource == "binding":
        return bound(store, target.namespace, target.name, body, request)
    given = (body.get("deleteOptions") if isinstance(body, dict) else None) or {}
    options = _delete_options(request, given)
    if isinstance(options, Refusal):
        return refusal_answer(options)
    result = evict(store.core, target.namespace, target.name, body, options, store.moment())
    return refusal_answer(result) if isinstance(result, Refusal) else value_answer(201, BOUND)


def bound(store: ClusterStore, namespace: str, name: str, body: Any, request: Request) -> Answer:
    """Carry out a Binding."""
    dry = request.query.get("dryRun") == "All"
    result = bind(store.core, namespace, name, body, dry, store.moment())
    return refusal_answer(result) if isinstance(result, Refusal) else value_answer(201, BOUND)


_ON_OBJECT = {"GET": _get, "PUT": _put, "PATCH": _patch, "DELETE": _delete}
_ON_COLLECTION = {"GET": _list, "POST": _post, "DELETE": _delete_collection}
