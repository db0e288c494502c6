"""What `matchLabelKeys` and `mismatchLabelKeys` of a Pod become at its creation: requirements of
their selectors, with the pod's own values (KEP-3633, KEP-3243).

Source: k8s.io/kubernetes pkg/registry/core/pod/strategy.go, held against kube-apiserver 1.36.2.
Must not judge.
"""

from __future__ import annotations

from typing import Any

from shared.domain.constraints import PREFERRED, REQUIRED

Json = dict[str, Any]


def merged(spec: Json, labels: dict[str, str]) -> Json:
    """The PodSpec of a pod with these labels."""
    full = dict(spec)
    if spec.get("topologySpreadConstraints"):
        full["topologySpreadConstraints"] = [
            _selecting(constraint, labels) for constraint in spec["topologySpreadConstraints"]
        ]
    if spec.get("affinity"):
        full["affinity"] = dict(spec["affinity"])
        for kind in ("podAffinity", "podAntiAffinity"):
            if spec["affinity"].get(kind):
                full["affinity"][kind] = _of_terms(spec["affinity"][kind], labels)
    return full


def _of_terms(affinity: Json, labels: dict[str, str]) -> Json:
    full = dict(affinity)
    if affinity.get(REQUIRED):
        full[REQUIRED] = [_selecting(term, labels) for term in affinity[REQUIRED]]
    if affinity.get(PREFERRED):
        full[PREFERRED] = [
            {
                **weighted,
                "podAffinityTerm": _selecting(weighted.get("podAffinityTerm") or {}, labels),
            }
            for weighted in affinity[PREFERRED]
        ]
    return full


def _selecting(rule: Json, labels: dict[str, str]) -> Json:
    selector = rule.get("labelSelector")
    if selector is None:
        return rule
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in rule.get(field) or []
        if key in labels
    ]
    if not added:
        return rule
    return {
        **rule,
        "labelSelector": {
            **selector,
            "matchExpressions": [*(selector.get("matchExpressions") or []), *added],
        },
    }
