"""Create, update and patch: the generic registry. Must not know HTTP, clocks or randomness (a
`Moment` brings both).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from services.simulator.api.core import apply, events, kinds, pod_classes, pods, schema, strategies
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.patches import PatchError, json_patch, merge_patch
from services.simulator.api.core.refusals import (
    Cause,
    Refusal,
    already_exists,
    bad_request,
    details_of,
    invalid,
    not_found,
    options_invalid,
    refuse,
    stale,
)
from services.simulator.api.core.store import Entry, Store
from services.simulator.api.core.strategic import StrategicError, strategic_merge
from services.simulator.api.core.views import view_of

Json = dict[str, Any]


class Moment(msgspec.Struct, frozen=True):
    """What a write needs from outside: the time, a fresh uid and a random name suffix."""

    now: datetime
    uid: str = ""
    suffix: str = ""

    @property
    def stamp(self) -> str:
        """The time as metav1.Time."""
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")


class Options(msgspec.Struct, frozen=True):
    """Query parameters of a write."""

    dry_run: bool = False
    field_validation: str = "Warn"
    field_manager: str = ""
    force: bool = False
    taint_nodes: bool = True


class Written(msgspec.Struct, frozen=True):
    """A completed write, or one of a dry run: HTTP code, the object, and warnings for the
    client.
    """

    code: int
    entry: Entry
    warnings: tuple[str, ...] = ()


def create(
    store: Store, kind: Kind, namespace: str, body: Any, options: Options, moment: Moment
) -> Written | Refusal:
    """POST of an object."""
    decoded = strategies.decode(kind, body, options.field_validation)
    if isinstance(decoded, Refusal):
        return decoded
    obj, warnings = decoded
    metadata = obj["metadata"]
    if refused := _misplaced(store, kind, namespace, metadata, moment):
        return refused
    if kind.namespaced:
        metadata["namespace"] = namespace
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = f"{metadata['generateName']}{moment.suffix}"
    completed = pod_classes.completed(store, obj) if kind is kinds.PODS else obj
    if isinstance(completed, Refusal):
        return completed
    full = strategies.prepare_new(kind, completed, moment.stamp, taint_nodes=options.taint_nodes)
    if isinstance(full, Refusal):
        return full
    if refused := _not_admitted(store, kind, full):
        return refused
    key = (namespace if kind.namespaced else "", full["metadata"]["name"])
    if store.get(kind.storage, *key) is not None:
        return already_exists(kind, key[1])
    full = {**full, "metadata": _new_metadata(kind, full["metadata"], moment)}
    return Written(201, _commit(store, kind, key, full, options), warnings)


def _not_admitted(store: Store, kind: Kind, full: Json) -> Refusal | None:
    """Return the refusal of an admission plugin for an object that is valid by itself, None for
    none.
    """
    if kind is kinds.PODS:
        return pod_classes.overhead_refusal(store, full)
    return pod_classes.second_default(store, full) if kind is kinds.PRIORITIES else None


def _misplaced(
    store: Store, kind: Kind, namespace: str, metadata: Json, moment: Moment
) -> Refusal | None:
    """Return the refusal if the body's namespace differs from the URL's, does not exist, or is
    terminating.
    """
    given = metadata.get("namespace") or ""
    if not kind.namespaced:
        return bad_request("namespace is not allowed on this type") if given else None
    if given not in ("", namespace):
        return bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    home = store.get("namespaces", "", namespace)
    if home is None:
        return not_found(kinds.NAMESPACES, namespace)
    name = metadata.get("name") or f"{metadata.get('generateName', '')}{moment.suffix}"
    return namespace_ends(store, kind, namespace, name)


def namespace_ends(store: Store, kind: Kind, namespace: str, name: str) -> Refusal | None:
    """Refuse creation in a terminating namespace, subresources of its objects included."""
    home = store.get("namespaces", "", namespace)
    ends = home is not None and home.obj["metadata"].get("deletionTimestamp")
    return _terminating(kind, namespace, name) if ends else None


def _terminating(kind: Kind, namespace: str, name: str) -> Refusal:
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    text = f'{kind.qualified} "{name}" is forbidden: {why}'
    return refuse(403, text, "Forbidden", {**details_of(kind, name), "causes": [cause]})


def _new_metadata(kind: Kind, given: Json, moment: Moment) -> Json:
    kept = (
        "name",
        "generateName",
        "namespace",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    )
    metadata: Json = {field: given[field] for field in kept if given.get(field)}
    metadata["uid"] = moment.uid
    metadata["creationTimestamp"] = moment.stamp
    if kind.generation != "none":
        metadata["generation"] = 1
    return metadata


def _commit(store: Store, kind: Kind, key: tuple[str, str], obj: Json, options: Options) -> Entry:
    if options.dry_run:
        return Entry(key, obj, store.version)
    return store.put(kind.storage, key, obj)


def update(
    store: Store,
    kind: Kind,
    namespace: str,
    name: str,
    body: Any,
    subresource: str,
    options: Options,
    moment: Moment,
) -> Written | Refusal:
    """PUT of an object or of its status."""
    decoded = strategies.decode(kind, body, options.field_validation)
    if isinstance(decoded, Refusal):
        return decoded
    obj, warnings = decoded
    given = obj["metadata"].get("name") or ""
    if given != name:
        return _wrong_name(given, name)
    old = store.get(kind.storage, namespace, name)
    if old is None:
        if kind.creates_on_update and not subresource:
            return create(store, kind, namespace, body, options, moment)
        return not_found(kind, name)
    if kind.needs_version_on_update and not obj["metadata"].get("resourceVersion"):
        text = "Invalid value: 0: must be specified for an update"
        return invalid(
            kind,
            name,
            [Cause("FieldValueInvalid", text, "metadata.resourceVersion")],
            by_resource=True,
        )
    if kind is kinds.EVENTS_V1:
        obj = events.to_core(obj)
    return replace(store, kind, old, obj, subresource, options, warnings)


def _wrong_name(given: str, name: str) -> Refusal:
    return bad_request(
        f"the name of the object ({given}) does not match the name on the URL ({name})"
    )


def replace(
    store: Store,
    kind: Kind,
    old: Entry,
    new: Json,
    subresource: str,
    options: Options,
    warnings: tuple[str, ...] = (),
) -> Written | Refusal:
    """Store `new` (in stored form) in place of `old`: preconditions, rules, generation, no version
    for no change.
    """
    metadata = new["metadata"]
    if metadata.get("resourceVersion") not in (None, "", old.obj["metadata"]["resourceVersion"]):
        return stale(kind, old.name)
    if metadata.get("uid") not in (None, "", old.uid):
        return _wrong_uid(kind, old, metadata["uid"])
    full = strategies.prepare_change(kind, old.obj, new, subresource)
    if isinstance(full, Refusal):
        return full
    full = {**full, "metadata": _kept_metadata(old.obj["metadata"], full["metadata"])}
    if full == old.obj:
        return Written(200, old, warnings)
    full = {**full, "metadata": _raised(kind, old.obj, full, apply.released(kind, old.obj, full))}
    entry = _commit(store, kind, old.key, full, options)
    if not options.dry_run and _finished(full["metadata"]):
        store.erase(kind.storage, old.key)
    return Written(200, entry, warnings)


def _wrong_uid(kind: Kind, old: Entry, given: str) -> Refusal:
    cause = Cause(
        "FieldValueInvalid", f'Invalid value: "{given}": field is immutable', "metadata.uid"
    )
    return invalid(kind, old.name, [cause, cause])


def _kept_metadata(old: Json, new: Json) -> Json:
    """Labels, annotations, finalizers and owners from the new version, everything else from the old
    one.
    """
    metadata = {key: value for key, value in old.items() if key not in _CHANGEABLE}
    for field in _CHANGEABLE:
        if new.get(field):
            metadata[field] = new[field]
    return metadata


_CHANGEABLE = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")


def _raised(kind: Kind, old: Json, new: Json, managed: list[Json]) -> Json:
    metadata = dict(new["metadata"])
    if managed:
        metadata["managedFields"] = managed
    if (kind.generation == "spec" and new.get("spec") != old.get("spec")) or (
        kind.generation == "all"
        and any(new.get(key) != old.get(key) for key in {*new, *old} - {"metadata"})
    ):
        metadata["generation"] = metadata.get("generation", 0) + 1
    return metadata


def _finished(metadata: Json) -> bool:
    """Return whether this is a terminating object without finalizers."""
    waiting = metadata.get("deletionGracePeriodSeconds", 0)
    return (
        bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers") and not waiting
    )


def patch(
    store: Store,
    kind: Kind,
    namespace: str,
    name: str,
    body: Any,
    form: str,
    subresource: str,
    options: Options,
    moment: Moment,
) -> Written | Refusal:
    """PATCH; `form` is merge, strategic, json or apply."""
    old = store.get(kind.storage, namespace, name)
    if form == "apply":
        return _apply(store, kind, (namespace, name), old, body, subresource, options, moment)
    if old is None:
        return not_found(kind, name)
    patched = _patched(view_of(kind, old, with_type=True), body, form)
    if isinstance(patched, Refusal):
        return patched
    examined = None if form == "json" else body
    decoded = strategies.decode(kind, patched, options.field_validation, examined)
    if isinstance(decoded, Refusal):
        return decoded
    obj, warnings = decoded
    given = obj["metadata"].get("name") or ""
    if given != name:
        return _wrong_name(given, name)
    if kind is kinds.EVENTS_V1:
        obj = events.to_core(obj)
    return replace(store, kind, old, obj, subresource, options, warnings)


def _patched(view: Json, body: Any, form: str) -> Any:
    try:
        if form == "json":
            return json_patch(view, body)
        if not isinstance(body, dict):
            return bad_request(
                "json: cannot unmarshal array into Go value of type map[string]interface {}"
            )
        return merge_patch(view, body) if form == "merge" else strategic_merge(view, body)
    except PatchError:
        return refuse(
            422, "the server rejected our request due to an error in our request", "Invalid", {}
        )
    except (StrategicError, TypeError, AttributeError) as error:
        return refuse(422, str(error), "Invalid", {})


def _apply(
    store: Store,
    kind: Kind,
    key: tuple[str, str],
    old: Entry | None,
    body: Any,
    subresource: str,
    options: Options,
    moment: Moment,
) -> Written | Refusal:
    """Apply server-side: create a missing object, or merge the applied fields with those of other
    managers.
    """
    decoded = strategies.decode(kind, body, "Ignore")
    if isinstance(decoded, Refusal):
        return decoded
    applied = pods.with_canonical_amounts(decoded[0]) if kind is kinds.PODS else decoded[0]
    if refused := _apply_refused(kind, key[1], body, applied, options):
        return refused
    if old is None:
        if subresource:
            return not_found(kind, key[1])
        made = apply.with_owner(kind, applied, options.field_manager, moment.stamp)
        return create(
            store,
            kind,
            key[0],
            {"kind": kind.kind, "apiVersion": kind.api_version, **made},
            options,
            moment,
        )
    if applied["metadata"].get("resourceVersion") not in (
        None,
        "",
        old.obj["metadata"]["resourceVersion"],
    ):
        return stale(kind, key[1])
    merged = apply.merged(
        kind, old.obj, applied, options.field_manager, options.force, moment.stamp, subresource
    )
    if isinstance(merged, Refusal):
        return merged
    return replace(store, kind, old, merged, subresource, options)


def _apply_refused(
    kind: Kind, name: str, body: Json, applied: Json, options: Options
) -> Refusal | None:
    if not options.field_manager:
        text = "Required value: is required for apply patch"
        return options_invalid("PatchOptions", "fieldManager", "FieldValueRequired", text)
    given = applied["metadata"].get("name") or name
    if given != name:
        return _wrong_name(given, name)
    unknown = schema.examine(kind, body).unknown
    if unknown:
        shown = (
            f"({applied['metadata'].get('namespace', '')}/{name}; {kind.api_version}, "
            f"Kind={kind.kind})"
        )
        return refuse(
            500,
            (
                f"failed to create typed patch object {shown}: .{unknown[0]}: field not declared "
                "in schema"
            ),
        )
    return None
