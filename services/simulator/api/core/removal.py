"""Deleting: graceful for bound pods, at once for the rest, finalizers respected, namespaces
emptied. Must not know HTTP.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from services.simulator.api.core import kinds
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.refusals import Refusal, conflict, not_found
from services.simulator.api.core.store import Entry, Store
from services.simulator.api.core.writes import Moment

Json = dict[str, Any]

DEFAULT_GRACE_S = 30
# About 31 years: the time of deletion cannot be written beyond it.
MAX_GRACE_S = 1_000_000_000


class DeleteOptions(msgspec.Struct, frozen=True):
    """The options of a DELETE. A `grace_s` of None means the pod's
    terminationGracePeriodSeconds.
    """

    grace_s: int | None = None
    uid: str = ""
    version: str = ""
    dry_run: bool = False


class Deleted(msgspec.Struct, frozen=True):
    """A deletion that has begun, or that has ended (`is_removed`)."""

    entry: Entry
    is_removed: bool


def delete(
    store: Store, kind: Kind, namespace: str, name: str, options: DeleteOptions, moment: Moment
) -> Deleted | Refusal:
    """DELETE of one object."""
    entry = store.get(kind.storage, namespace, name)
    if entry is None:
        return not_found(kind, name)
    if unmet := unmet_precondition(kind, entry, options):
        return unmet
    if options.dry_run:
        return Deleted(_preview(kind, entry, options, moment), False)
    if kind is kinds.PODS:
        deleted = _delete_pod(store, entry, options, moment)
    elif kind is kinds.NAMESPACES:
        deleted = _delete_namespace(store, entry, moment)
    else:
        deleted = _delete_at_once(store, kind, entry, moment)
    if namespace and deleted.is_removed:
        finish_namespace(store, namespace)
    return deleted


def unmet_precondition(kind: Kind, entry: Entry, options: DeleteOptions) -> Refusal | None:
    """Return 409 if the options name a uid or version that is not the object's."""
    why = ""
    if options.uid and options.uid != entry.uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({entry.uid}). "
            "The object might have been deleted and then recreated"
        )
    current = entry.obj["metadata"]["resourceVersion"]
    if not why and options.version and options.version != current:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the "
            "ResourceVersion in record "
            f"({current}). The object might have been modified"
        )
    return conflict(kind, entry.name, why, label=kind.kind) if why else None


def grace_of(pod: Json, options: DeleteOptions) -> int:
    """Return the grace period of a pod in seconds: 0 if it has no node or has ended."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Failed", "Succeeded"):
        return 0
    if options.grace_s is not None:
        return min(max(0, options.grace_s), MAX_GRACE_S)
    pod_grace_s = pod["spec"].get("terminationGracePeriodSeconds")
    return min(max(1, pod_grace_s), MAX_GRACE_S) if pod_grace_s is not None else DEFAULT_GRACE_S


def _preview(kind: Kind, entry: Entry, options: DeleteOptions, moment: Moment) -> Entry:
    if kind is not kinds.PODS:
        return entry
    return Entry(
        entry.key, _marked(entry.obj, grace_of(entry.obj, options), moment.now), entry.version
    )


def _delete_pod(store: Store, entry: Entry, options: DeleteOptions, moment: Moment) -> Deleted:
    metadata = entry.obj["metadata"]
    grace_s = grace_of(entry.obj, options)
    terminating = bool(metadata.get("deletionTimestamp"))
    left_s = metadata.get("deletionGracePeriodSeconds", 0)
    if terminating and (
        grace_s > left_s if grace_s else left_s == 0 and bool(metadata.get("finalizers"))
    ):
        return Deleted(entry, False)
    if terminating and grace_s and grace_s == left_s:
        return Deleted(entry, False)
    if not (terminating and left_s == 0 and grace_s == 0):
        entry = store.put("pods", entry.key, _marked(entry.obj, grace_s, moment.now))
    if grace_s or metadata.get("finalizers"):
        return Deleted(entry, False)
    return Deleted(store.erase("pods", entry.key), True)


def _marked(pod: Json, grace_s: int, deleted_at: datetime) -> Json:
    """Return the pod with its deletion time. A shorter grace period makes an existing time
    earlier.
    """
    metadata = dict(pod["metadata"])
    begun = deleted_at
    if metadata.get("deletionTimestamp"):
        begun = _time(metadata["deletionTimestamp"]) - timedelta(
            seconds=metadata.get("deletionGracePeriodSeconds", 0)
        )
    else:
        metadata["generation"] = metadata.get("generation", 1) + 1
    metadata["deletionTimestamp"] = (begun + timedelta(seconds=grace_s)).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
    metadata["deletionGracePeriodSeconds"] = grace_s
    return {**pod, "metadata": metadata}


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _delete_at_once(store: Store, kind: Kind, entry: Entry, moment: Moment) -> Deleted:
    metadata = entry.obj["metadata"]
    if not metadata.get("finalizers"):
        return Deleted(store.erase(kind.storage, entry.key), True)
    if metadata.get("deletionTimestamp"):
        return Deleted(entry, False)
    marked = {**metadata, "deletionTimestamp": moment.stamp, "deletionGracePeriodSeconds": 0}
    return Deleted(store.put(kind.storage, entry.key, {**entry.obj, "metadata": marked}), False)


def _delete_namespace(store: Store, entry: Entry, moment: Moment) -> Deleted:
    """Mark it Terminating and delete its objects. It is removed with its last pod."""
    if not entry.obj["metadata"].get("deletionTimestamp"):
        metadata = {**entry.obj["metadata"], "deletionTimestamp": moment.stamp}
        status = {**entry.obj.get("status", {}), "phase": "Terminating"}
        entry = store.put(
            "namespaces", entry.key, {**entry.obj, "metadata": metadata, "status": status}
        )
    for storage, kind in sorted(kinds.BY_STORAGE.items()):
        if kind.namespaced:
            for inside in store.entries(storage, entry.name):
                delete(store, kind, entry.name, inside.name, DeleteOptions(), moment)
    finish_namespace(store, entry.name)
    return Deleted(entry, store.get("namespaces", "", entry.name) is None)


def finish_namespace(store: Store, namespace: str) -> None:
    """Remove a terminating namespace that is empty."""
    home = store.get("namespaces", "", namespace)
    if home is None or not home.obj["metadata"].get("deletionTimestamp"):
        return
    storages = [storage for storage, kind in kinds.BY_STORAGE.items() if kind.namespaced]
    if not any(store.entries(storage, namespace) for storage in storages):
        store.erase("namespaces", home.key)
