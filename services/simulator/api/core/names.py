"""Names, labels and annotations: are they allowed. Must not know kinds or storage. Source:
apimachinery validation.
"""

from __future__ import annotations

import re
from typing import Any

from services.simulator.api.core.refusals import Cause

Json = dict[str, Any]

MAX_ANNOTATION_BYTES = 262_144

_SUBDOMAIN_FORM = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN = re.compile(_SUBDOMAIN_FORM)
_LABEL_FORM = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL = re.compile(_LABEL_FORM)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE_FORM = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_VALUE = re.compile(_VALUE_FORM)

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
    "characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation "
    f"is '{_SUBDOMAIN_FORM}')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters "
    "or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
    f"validation is '{_LABEL_FORM}')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, "
    "'-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '{_VALUE_FORM}')"
)
_NAME_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def subdomain_problem(name: str) -> str:
    """Return why a name is no RFC 1123 subdomain (names of objects), "" if it is one."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_TEXT


def label_problem(name: str) -> str:
    """Return why a name is no RFC 1123 label (containers, namespaces), "" if it is one."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    return "" if _LABEL.fullmatch(name) else _LABEL_TEXT


def qualified_problems(name: str) -> list[str]:
    """Why a text is no qualified name (`prefix/name`); the server lists every reason."""
    part = name.rpartition("/")[2]
    problems = [] if part else ["name part must be non-empty"]
    if len(part) > 63:
        problems.append("name part must be no more than 63 characters")
    return problems if _QUALIFIED.fullmatch(part) else [*problems, _NAME_TEXT]


def metadata_problems(metadata: Json, *, as_label: bool = False) -> list[Cause]:
    """Return violations in an object's metadata. `as_label` is for kinds whose names are DNS labels
    (namespaces).
    """
    causes: list[Cause] = []
    name = metadata.get("name") or ""
    if not name:
        text = "Required value: name or generateName is required"
        causes.append(Cause("FieldValueRequired", text, "metadata.name"))
    elif problem := (label_problem(name) if as_label else subdomain_problem(name)):
        causes.append(
            Cause("FieldValueInvalid", f'Invalid value: "{name}": {problem}', "metadata.name")
        )
    return (
        causes
        + _label_problems(metadata.get("labels") or {})
        + _annotation_problems(metadata.get("annotations") or {})
    )


def _label_problems(labels: Json) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in sorted(labels.items()):
        for problem in qualified_problems(key):
            causes.append(
                Cause("FieldValueInvalid", f'Invalid value: "{key}": {problem}', "metadata.labels")
            )
        if len(value) > 63:
            text = f'Invalid value: "{value}": must be no more than 63 bytes'
            causes.append(Cause("FieldValueInvalid", text, "metadata.labels"))
        elif not _VALUE.fullmatch(value):
            causes.append(
                Cause(
                    "FieldValueInvalid",
                    f'Invalid value: "{value}": {_VALUE_TEXT}',
                    "metadata.labels",
                )
            )
    return causes


def _annotation_problems(annotations: Json) -> list[Cause]:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        text = f"Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"
        return [Cause("FieldValueTooLong", text, "metadata.annotations")]
    return []
