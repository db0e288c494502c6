"""Which objects a label or field selector takes. Must not know requests or storage."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.refusals import Refusal, bad_request
from services.simulator.api.core.store import Entry

_SET = re.compile(r"^(?P<key>[^\s!=,()<>]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s!=,()<>]+)\s*(?P<op>==|!=|=)\s*(?P<value>[^\s!=,()<>]*)$")
_EXISTS = re.compile(r"^(?P<not>!)?\s*(?P<key>[^\s!=,()<>]+)$")
_COMPARE = re.compile(r"^(?P<key>[^\s!=,()<>]+)\s*(?P<op>[<>])\s*(?P<value>-?\d+)$")


class Selection(msgspec.Struct, frozen=True):
    """Tests of labels, fields and the namespace, which must all hold. An empty selection matches
    everything.
    """

    namespace: str = ""
    labels: tuple[Callable[[dict[str, str]], bool], ...] = ()
    fields: tuple[Callable[[dict[str, Any]], bool], ...] = ()

    @property
    def selective(self) -> bool:
        """Whether labels or fields can exclude an object."""
        return bool(self.labels or self.fields)

    def takes(self, entry: Entry) -> bool:
        """Whether the object is selected."""
        if self.namespace and entry.key[0] != self.namespace:
            return False
        if self.labels:
            labels = entry.labels
            for label_test in self.labels:
                if not label_test(labels):
                    return False
        return all(field_test(entry.obj) for field_test in self.fields)


def selection(
    kind: Kind, namespace: str, label_selector: str, field_selector: str
) -> Selection | Refusal:
    """Compile the two selectors of a request, or return 400 in the server's words."""
    labels = parse_labels(label_selector)
    if isinstance(labels, Refusal):
        return labels
    fields = parse_fields(kind, field_selector)
    if isinstance(fields, Refusal):
        return fields
    return Selection(namespace, labels, fields)


def parse_labels(text: str) -> tuple[Callable[[dict[str, str]], bool], ...] | Refusal:
    """`a=b,c in (d,e),!f` as tests of a label map."""
    tests: list[Callable[[dict[str, str]], bool]] = []
    for part in _split(text):
        test = _label_test(part)
        if test is None:
            return _label_refusal(part)
        tests.append(test)
    return tuple(tests)


def _split(text: str) -> list[str]:
    """Split a selector into its requirements, at commas outside of parentheses."""
    parts = re.split(r",(?![^(]*\))", text) if text else []
    return [part.strip() for part in parts if part.strip()]


def _label_refusal(part: str) -> Refusal:
    if "==" in part and "===" in part:
        return bad_request("unable to parse requirement: found '=', expected: identifier")
    return bad_request(
        f"unable to parse requirement: found '{part}', expected: a requirement such as key=value"
    )


def _label_test(part: str) -> Callable[[dict[str, str]], bool] | None:
    if match := _SET.match(part):
        return _set_test(match["key"], match["op"], match["values"])
    if match := _EQUAL.match(part):
        return _equal_test(match["key"], match["op"], match["value"])
    if match := _EXISTS.match(part):
        return _exists_test(match["key"], bool(match["not"]))
    if match := _COMPARE.match(part):
        return _compare_test(match["key"], match["op"], int(match["value"]))
    return None


def _set_test(key: str, op: str, values: str) -> Callable[[dict[str, str]], bool]:
    wanted = frozenset(value.strip() for value in values.split(","))
    if op == "in":
        return lambda labels: labels.get(key) in wanted and key in labels
    return lambda labels: labels.get(key) not in wanted


def _equal_test(key: str, op: str, value: str) -> Callable[[dict[str, str]], bool]:
    if op == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _exists_test(key: str, negated: bool) -> Callable[[dict[str, str]], bool]:
    if negated:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _compare_test(key: str, op: str, bound: int) -> Callable[[dict[str, str]], bool]:
    def test(labels: dict[str, str]) -> bool:
        text = labels.get(key, "")
        if not re.fullmatch(r"-?\d+", text):
            return False
        return int(text) > bound if op == ">" else int(text) < bound

    return test


def parse_fields(kind: Kind, text: str) -> tuple[Callable[[dict[str, Any]], bool], ...] | Refusal:
    """`spec.nodeName=,status.phase!=Failed` as tests of an object; 400 for a field the kind does
    not select on.
    """
    tests: list[Callable[[dict[str, Any]], bool]] = []
    for part in _split(text):
        match = re.match(r"^(?P<path>[^=!]+)(?P<op>==|!=|=)(?P<value>.*)$", part)
        if match is None:
            return bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        path = match["path"].strip()
        if path not in ("metadata.name", "metadata.namespace") and path not in kind.field_labels:
            return bad_request(f"field label not supported: {path}")
        tests.append(_field_test(kind, path, match["op"] == "!=", match["value"]))
    return tuple(tests)


def _field_test(
    kind: Kind, path: str, negated: bool, value: str
) -> Callable[[dict[str, Any]], bool]:
    steps = _stored_path(path)

    def test(obj: dict[str, Any]) -> bool:
        value_at: Any = obj
        for step in steps:
            value_at = value_at.get(step) if isinstance(value_at, dict) else None
        return (_text(value_at) == value) is not negated

    return test


def _stored_path(path: str) -> tuple[str, ...]:
    """Events are stored in core/v1 form: a selector of events.k8s.io/v1 is turned into that
    form.
    """
    path = path.replace("regarding.", "involvedObject.").replace(
        "reportingController", "reportingComponent"
    )
    if path == "source":
        path = "source.component"
    return tuple(path.split("."))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def from_label_selector(selector: dict[str, Any] | None) -> Callable[[dict[str, str]], bool]:
    """A metav1.LabelSelector as a test. None selects nothing, an empty one everything
    (policy/v1).
    """
    if selector is None:
        return lambda labels: False
    tests = [
        _equal_test(key, "=", value)
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    for term in selector.get("matchExpressions") or []:
        tests.append(_expression_test(term))
    return lambda labels: all(test(labels) for test in tests)


def _expression_test(term: dict[str, Any]) -> Callable[[dict[str, str]], bool]:
    key, operator, values = term["key"], term["operator"], frozenset(term.get("values") or [])
    if operator == "In":
        return lambda labels: key in labels and labels[key] in values
    if operator == "NotIn":
        return lambda labels: labels.get(key) not in values
    return _exists_test(key, operator == "DoesNotExist")
