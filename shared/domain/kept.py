"""The labels and annotations of a pod that enter the event log.

1. Events are never changed, so anything that enters the log stays there. Annotations can contain
whole manifests (kubectl's last applied configuration) and secrets. Only the annotations that a
decision uses are kept.

2. Labels are kept in clear text if selectors usually name them: the keys that distinguish
workloads, and the keys that the pod's own affinity and spread constraints select by. For other
labels the key and a digest of the value are kept, because a required anti-affinity of any pod may
select by any label.

3. Nodes keep all labels, because any later pod may select by them, and no annotations.

4. Of containers only names and amounts are read (`shared.domain.manifest`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import xxhash

from shared.domain.hold_after import HOLD_AFTER
from shared.domain.pod import Pod
from shared.domain.zone_allocation import RESOURCE_STATUS

# Read by `services.scheduler.snapshot.topology_policy` and `owned_request`, by
# `services.scheduler.reserve.takeover`, and by `shared.domain.hold_after`.
POD_ANNOTATIONS = frozenset(
    (
        "scheduling.koordinator.sh/numa-topology-spec",
        "scheduling.koordinator.sh/resource-spec",
        RESOURCE_STATUS,
        "volcano.sh/numa-topology-policy",
        HOLD_AFTER,
    )
)

# Labels that controllers and charts use to distinguish workloads.
POD_LABELS = frozenset(
    (
        "app",
        "app.kubernetes.io/component",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/name",
        "app.kubernetes.io/part-of",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-name",
        "controller-revision-hash",
        "job-name",
        "k8s-app",
        "koordinator.sh/priority-class",
        "koordinator.sh/qosClass",
        "pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
    )
)

_PLACES = ("podAffinity", "podAntiAffinity")


def trimmed(pod: Pod, spec: dict[str, Any]) -> Pod:
    """Return the pod with only the labels and annotations that are kept. `spec` is the spec of its
    manifest.
    """
    keys = POD_LABELS.union(_selected(spec)) if pod.labels else POD_LABELS
    labels = {key: value if key in keys else digest(value) for key, value in pod.labels.items()}
    annotations = {key: value for key, value in pod.annotations.items() if key in POD_ANNOTATIONS}
    if labels == pod.labels and len(annotations) == len(pod.annotations):
        return pod
    return msgspec.structs.replace(pod, labels=labels, annotations=annotations)


def digest(value: str) -> str:
    """Return a digest of a label value. It is equal for equal values and is never itself a valid
    label value.
    """
    return f"~{xxhash.xxh3_128_hexdigest(value.encode())}"


def is_among(kept_value: str, wanted: Sequence[str]) -> bool:
    """Return whether a kept label has one of these values."""
    if kept_value in wanted:
        return True
    return kept_value.startswith("~") and any(kept_value == digest(value) for value in wanted)


def is_value(kept_value: str, wanted: str) -> bool:
    """Return whether a kept label has this value."""
    return is_among(kept_value, (wanted,))


def _selected(spec: dict[str, Any]) -> Iterator[str]:
    """Yield the keys that the pod's own selectors name. Malformed selectors name none."""
    for constraint in _objects(spec.get("topologySpreadConstraints")):
        yield from _keys(constraint)
    affinity = spec.get("affinity")
    if not isinstance(affinity, dict):
        return
    for place in _PLACES:
        terms = affinity.get(place)
        for listed in terms.values() if isinstance(terms, dict) else ():
            for term in _objects(listed):
                inner = term.get("podAffinityTerm")
                yield from _keys(inner if isinstance(inner, dict) else term)


def _keys(term: dict[str, Any]) -> Iterator[str]:
    for names in (term.get("matchLabelKeys"), term.get("mismatchLabelKeys")):
        yield from (
            (name for name in names if isinstance(name, str)) if isinstance(names, list) else ()
        )
    selector = term.get("labelSelector")
    if isinstance(selector, dict):
        labels = selector.get("matchLabels")
        yield from labels if isinstance(labels, dict) else ()
        yield from (
            str(expression.get("key")) for expression in _objects(selector.get("matchExpressions"))
        )


def _objects(listed: Any) -> list[dict[str, Any]]:
    return (
        [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    )
