"""What of a pod's labels and annotations is kept in the log: what deciding needs, by a stated list,
and nothing else.

Facts are never altered: whatever enters one stays. Annotations hold whole manifests (kubectl's last
applied configuration) and with them secrets; so only those stand here that somebody decides by.
Labels are kept in words that selectors mostly name: the keys by which workloads are told apart, and
those that the pod's own affinity and spread constraints select by. Of the others the key stays and
a digest of the value, since a required anti-affinity of any pod may select by any label. Nodes keep
all labels, since any later pod may select by any of them, and no annotations. Of containers only
names and amounts are read (`shared.domain.manifest`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import xxhash

from shared.domain.pod import Pod

POD_ANNOTATIONS = frozenset(("scheduling.koordinator.sh/numa-topology-spec",))
"""Read by `services.scheduler.snapshot.topology_policy`."""

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
        "pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
    )
)
"""What controllers and charts tell workloads apart by."""

_PLACES = ("podAffinity", "podAntiAffinity")


def trimmed(pod: Pod, spec: dict[str, Any]) -> Pod:
    """The pod with the labels and annotations that are kept; `spec` is its manifest's."""
    keys = POD_LABELS.union(_selected(spec)) if pod.labels else POD_LABELS
    labels = {key: value if key in keys else digest(value) for key, value in pod.labels.items()}
    annotations = {key: value for key, value in pod.annotations.items() if key in POD_ANNOTATIONS}
    if labels == pod.labels and len(annotations) == len(pod.annotations):
        return pod
    return msgspec.structs.replace(pod, labels=labels, annotations=annotations)


def digest(value: str) -> str:
    """Equal for equal values, and no value of a label itself: those are at most 63 characters of
    another alphabet.
    """
    return f"~{xxhash.xxh3_128_hexdigest(value.encode())}"


def is_value(held: str, wanted: str) -> bool:
    """Is the label, as it is kept, of this value?"""
    return held == wanted or (held.startswith("~") and held == digest(wanted))


def _selected(spec: dict[str, Any]) -> Iterator[str]:
    """Keys that the pod's own selectors name. Whatever is of another shape names none."""
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
        yield from (str(each.get("key")) for each in _objects(selector.get("matchExpressions")))


def _objects(listed: Any) -> list[dict[str, Any]]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
