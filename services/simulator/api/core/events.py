"""Events in their two API forms: stored as core/v1, shown as either, and judged. Must not know
storage.
"""

from __future__ import annotations

from typing import Any

from services.simulator.api.core.kinds import EVENTS_V1, Kind
from services.simulator.api.core.names import qualified_problems
from services.simulator.api.core.refusals import Cause

Json = dict[str, Any]

MAX_NOTE_BYTES = 1024

_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_FROM_CORE = {core: modern for modern, core in _TO_CORE.items()}
_CORE_DEFAULTS: Json = {
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_SHOWN_EMPTY = frozenset({"eventTime"})


def to_core(event: Json) -> Json:
    """Return an events.k8s.io/v1 body in the stored core/v1 form."""
    return {_TO_CORE.get(key, key): value for key, value in event.items()}


def from_core(event: Json) -> Json:
    """Return the stored form as events.k8s.io/v1, without empty fields except eventTime."""
    shown: Json = {"metadata": event["metadata"], "eventTime": event.get("eventTime")}
    for key, value in event.items():
        if key == "source" and value == {}:
            shown["deprecatedSource"] = {}
        elif value not in (None, "", {}) and key not in shown:
            shown[_FROM_CORE.get(key, key)] = value
    for stamp in ("firstTimestamp", "lastTimestamp"):
        shown.setdefault(_FROM_CORE[stamp], event.get(stamp))
    return shown


def with_defaults(event: Json) -> Json:
    """Return the event with the empty fields that Go writes, too."""
    return {**_CORE_DEFAULTS, **{key: value for key, value in event.items() if value is not None}}


def problems(kind: Kind, event: Json) -> list[Cause]:
    """Return the violations of an event in stored form that was posted as `kind`. events.k8s.io/v1
    requires much more than core/v1.
    """
    namespace = event["metadata"].get("namespace", "")
    involved = (event.get("involvedObject") or {}).get("namespace", "")
    causes: list[Cause] = []
    if involved != namespace and not (involved == "" and namespace == "default"):
        text = f'Invalid value: "{involved}": does not match event.namespace'
        causes.append(Cause("FieldValueInvalid", text, "involvedObject.namespace"))
    modern = kind is EVENTS_V1
    if modern and not event.get("eventTime"):
        return [*causes, Cause("FieldValueRequired", "Required value", "eventTime")]
    if causes or not event.get("eventTime"):
        return causes
    return _modern_problems(
        event, "reportingController" if modern else "reportingComponent", modern
    )


def _modern_problems(event: Json, controller_field: str, modern: bool) -> list[Cause]:
    causes: list[Cause] = []
    controller = event.get("reportingComponent") or ""
    if not controller:
        causes.append(Cause("FieldValueRequired", "Required value", controller_field))
    for problem in qualified_problems(controller):
        causes.append(
            Cause(
                "FieldValueInvalid", f'Invalid value: "{controller}": {problem}', controller_field
            )
        )
    for field in ("reportingInstance", "action", "reason"):
        if not event.get(field):
            causes.append(Cause("FieldValueRequired", "Required value", field))
    if len(str(event.get("message") or "").encode()) > MAX_NOTE_BYTES:
        text = f'Invalid value: "": can have at most {MAX_NOTE_BYTES} characters'
        causes.append(Cause("FieldValueInvalid", text, "message"))
    if event.get("type") not in ("Normal", "Warning"):
        text = f'Invalid value: "": has invalid value: {event.get("type") or ""}'
        causes.append(Cause("FieldValueInvalid", text, "type"))
    return causes if modern or causes else []
