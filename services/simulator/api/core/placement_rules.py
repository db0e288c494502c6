"""Whether what a Pod says of its place is well formed: ports, node selector, affinity, gates,
spread, tolerations.

Messages and their order are kube-apiserver 1.36's (pkg/apis/core/validation) with
TaintTolerationComparisonOperators. Must not know storage or requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from services.simulator.api.core.names import qualified_problems
from services.simulator.api.core.refusals import Cause
from shared.domain.constraints import PREFERRED, REQUIRED

Json = dict[str, Any]

_PORTS = range(1, 65_536)


def problems(spec: Json) -> list[Cause]:
    """Return every violation in a completed PodSpec apart from its containers', in the server's
    order.
    """
    causes = [
        _invalid("spec.nodeSelector", key, text)
        for key in sorted(spec.get("nodeSelector") or {})
        for text in qualified_problems(key)
    ]
    affinity = spec.get("affinity") or {}
    causes += _node_affinity(affinity.get("nodeAffinity") or {}, "spec.affinity.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        causes += _pod_affinity(affinity.get(kind) or {}, f"spec.affinity.{kind}")
    causes += _gates(spec.get("schedulingGates") or [])
    causes += _each(spec, "topologySpreadConstraints", _spread) + _spread_twice(
        spec.get("topologySpreadConstraints") or []
    )
    return causes + _each(spec, "tolerations", _toleration)


def port_problems(container: Json, path: str) -> list[Cause]:
    """Return violations in the ports of one container."""
    causes = []
    for index, port in enumerate(container.get("ports") or []):
        where, number, host = (
            f"{path}.ports[{index}]",
            port.get("containerPort") or 0,
            port.get("hostPort") or 0,
        )
        if not number:
            causes.append(_required(f"{where}.containerPort"))
        elif number not in _PORTS:
            causes.append(
                _invalid(f"{where}.containerPort", number, "must be between 1 and 65535, inclusive")
            )
        if host and host not in _PORTS:
            causes.append(
                _invalid(f"{where}.hostPort", host, "must be between 1 and 65535, inclusive")
            )
    return causes


def _each(spec: Json, field: str, check: Callable[[Json, str], Iterator[Cause]]) -> list[Cause]:
    return [
        cause
        for index, entry in enumerate(spec.get(field) or [])
        for cause in check(entry, f"spec.{field}[{index}]")
    ]


def _node_affinity(affinity: Json, path: str) -> list[Cause]:
    causes: list[Cause] = []
    required = affinity.get(REQUIRED)
    if required is not None:
        terms, where = (
            required.get("nodeSelectorTerms") or [],
            f"{path}.{REQUIRED}.nodeSelectorTerms",
        )
        causes += [] if terms else [_required(where, "must have at least one node selector term")]
        for index, term in enumerate(terms):
            causes += _node_term(term, f"{where}[{index}]")
    return causes + _preferred(affinity, path, "preference", _node_term)


def _preferred(
    affinity: Json, path: str, field: str, check: Callable[[Json, str], list[Cause]]
) -> list[Cause]:
    causes: list[Cause] = []
    for index, term in enumerate(affinity.get(PREFERRED) or []):
        where, weight = f"{path}.{PREFERRED}[{index}]", term.get("weight") or 0
        if not 0 < weight <= 100:
            causes.append(_invalid(f"{where}.weight", weight, "must be in the range 1-100"))
        causes += check(term.get(field) or {}, f"{where}.{field}")
    return causes


def _node_term(term: Json, path: str) -> list[Cause]:
    return [
        cause
        for index, expression in enumerate(term.get("matchExpressions") or [])
        for cause in _requirement(expression, f"{path}.matchExpressions[{index}]")
    ]


def _requirement(expression: Json, path: str) -> Iterator[Cause]:
    operator, values = expression.get("operator") or "", expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield _required(
                f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield _forbidden(
                f"{path}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield _required(
                f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
    else:
        yield _invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from (
        _invalid(f"{path}.key", expression.get("key") or "", text)
        for text in qualified_problems(expression.get("key") or "")
    )


def _pod_affinity(affinity: Json, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, term in enumerate(affinity.get(REQUIRED) or []):
        causes += _pod_term(term, f"{path}.{REQUIRED}[{index}]")
    return causes + _preferred(affinity, path, "podAffinityTerm", _pod_term)


def _pod_term(term: Json, path: str) -> list[Cause]:
    key = term.get("topologyKey") or ""
    missing = [] if key else [_required(f"{path}.topologyKey", "can not be empty")]
    return (
        _label_keys(term, path)
        + missing
        + [_invalid(f"{path}.topologyKey", key, text) for text in qualified_problems(key)]
    )


def _label_keys(rule: Json, path: str) -> list[Cause]:
    """Return violations of a rule after its label keys were merged into its selector."""
    selector, match, mismatch = (
        rule.get("labelSelector"),
        rule.get("matchLabelKeys") or [],
        rule.get("mismatchLabelKeys") or [],
    )
    causes = [
        *_keys_themselves(match, f"{path}.matchLabelKeys", selector),
        *_keys_themselves(mismatch, f"{path}.mismatchLabelKeys", selector),
        *_keys_of_selector(match, path, selector or {}),
    ]
    text = "exists in both matchLabelKeys and mismatchLabelKeys"
    return causes + [
        _invalid(f"{path}.matchLabelKeys[{index}]", key, text)
        for index, key in enumerate(match)
        if key in mismatch
    ]


def _keys_themselves(keys: list[str], path: str, selector: Json | None) -> list[Cause]:
    if keys and selector is None:
        return [_forbidden(path, "must not be specified when labelSelector is not set")]
    return [
        _invalid(f"{path}[{index}]", key, text)
        for index, key in enumerate(keys)
        for text in qualified_problems(key)
    ]


def _keys_of_selector(match: list[str], path: str, selector: Json) -> Iterator[Cause]:
    """Return violations of keys that occur twice in the selector, because it had them before the
    merge.
    """
    at_of = {key: index for index, key in enumerate(match)}
    seen = set(selector.get("matchLabels") or {})
    for expression in selector.get("matchExpressions") or []:
        key = expression.get("key") or ""
        if key in at_of and key in seen:
            yield _invalid(
                f"{path}[{at_of[key]}]", key, "exists in both matchLabelKeys and labelSelector"
            )
        seen.add(key)


def _gates(gates: list[Json]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        causes += [
            _invalid(f"spec.schedulingGates[{index}]", name, text)
            for text in qualified_problems(name)
        ]
        if name in seen:
            causes.append(_duplicate(f"spec.schedulingGates[{index}]", name))
        seen.add(name)
    return causes


def _spread(constraint: Json, path: str) -> Iterator[Cause]:
    if (skew := constraint.get("maxSkew") or 0) <= 0:
        yield _invalid(f"{path}.maxSkew", skew, "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield _required(f"{path}.topologyKey", "can not be empty")
    how = constraint.get("whenUnsatisfiable") or ""
    if how not in ("DoNotSchedule", "ScheduleAnyway"):
        yield _unsupported(f"{path}.whenUnsatisfiable", how, ("DoNotSchedule", "ScheduleAnyway"))
    domains = constraint.get("minDomains")
    if domains is not None and domains <= 0:
        yield _invalid(f"{path}.minDomains", domains, "must be greater than zero")
    if domains is not None and how == "ScheduleAnyway":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {how}"
        yield _invalid(f"{path}.minDomains", domains, text)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if constraint.get(policy) not in (None, "Honor", "Ignore"):
            yield _unsupported(f"{path}.{policy}", constraint[policy], ("Honor", "Ignore"))
    yield from _label_keys(constraint, path)


def _spread_twice(given: list[Json]) -> list[Cause]:
    pairs = [
        (constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or "")
        for constraint in given
    ]
    return [
        _duplicate(
            f"spec.topologySpreadConstraints[{index}].{{topologyKey, whenUnsatisfiable}}",
            f"{{{pair[0]}, {pair[1]}}}",
        )
        for index, pair in enumerate(pairs)
        if pair in pairs[index + 1 :]
    ]


def _toleration(toleration: Json, path: str) -> Iterator[Cause]:
    key, operator, effect = (
        toleration.get("key") or "",
        toleration.get("operator") or "",
        toleration.get("effect") or "",
    )
    if key:
        yield from (_invalid(f"{path}.key", key, text) for text in qualified_problems(key))
    elif operator != "Exists":
        text = (
            'operator must be Exists when `key` is empty, which means "match all values and '
            'all keys"'
        )
        yield _invalid(f"{path}.operator", operator, text)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield _invalid(
            f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
        )
    if operator == "Exists" and toleration.get("value"):
        yield _invalid(
            f"{path}.operator",
            toleration["value"],
            ("value must be empty when `operator` is 'Exists'"),
        )
    if operator not in ("", "Equal", "Exists", "Gt", "Lt"):
        yield _unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        yield _unsupported(
            f"{path}.effect", effect, ("NoSchedule", "PreferNoSchedule", "NoExecute")
        )


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _invalid(field: str, value: Any, text: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {_shown(value)}: {text}", field)


def _required(field: str, text: str = "") -> Cause:
    return Cause(
        "FieldValueRequired", f"Required value: {text}" if text else "Required value", field
    )


def _forbidden(field: str, text: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {text}", field)


def _duplicate(field: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {_shown(value)}", field)


def _unsupported(field: str, value: Any, allowed: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{allowed_value}"' for allowed_value in allowed)
    return Cause(
        "FieldValueNotSupported",
        f"Unsupported value: {_shown(value)}: supported values: {listed}",
        field,
    )
