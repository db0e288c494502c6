"""Fingerprint vectors: raw pod sets, and how the upstream plugin chooses and checks them on a node.

`BY_TYPE` has one check for each `type` of case; a new type is one entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.domain.manifest import ManifestError, pod_from_manifest
from shared.domain.pod import Pod
from shared.kubelet.fingerprint import ALL, EXCLUSIVE, fingerprint
from shared.kubelet.fingerprint import check as check_fingerprint
from tests.fixtures.fingerprint_members import members, spec_is_exclusive
from tests.vectors.fingerprint_method import check_method
from tests.vectors.registry import has_keys
from tests.vectors.shapes import differ

KIND = "podfingerprint"


def recognises(doc: dict[str, Any]) -> bool:
    return has_keys(doc, "type", "pods", "kind", "expect")


def check(case: dict[str, Any]) -> list[str]:
    return BY_TYPE[case["type"]](case)


def podset(case: dict[str, Any]) -> list[str]:
    """Check the fingerprint of a set of names."""
    ours = fingerprint((pod["namespace"], pod["name"]) for pod in case["pods"])
    return differ("fingerprint", ours, case["expect"]["fingerprint"])


def method(case: dict[str, Any]) -> list[str]:
    """Check pods with specs on a node: the exclusive pods, both fingerprints, and the result of
    each check.

    The relevant pods of an informer mode, and how a resync method reads the object, are part of the
    plugin. They are taken from the recording here, and `check_method` checks them for compat mode.
    """
    expect = case["expect"]
    pods = [_pod(doc) for doc in case["pods"]]
    names = {
        resource["name"]
        for zone in case["nrt"].get("zones") or []
        for resource in zone.get("resources") or []
    }
    differences: list[str] = []
    ours: list[Pod] = []
    for pod, seen in zip(pods, expect["pods"], strict=True):
        is_on_node = pod.constraints.node_name == case["node"]
        exclusive = spec_is_exclusive(pod, names if is_on_node else (), count_zero=True)
        differences += differ(
            pod.key, (pod.key, pod.qos, exclusive), (seen["name"], seen["qos"], seen["exclusive"])
        )
        ours += [pod] if is_on_node and seen["relevant"] else []
    for way, recorded in ((ALL, "fingerprint_all"), (EXCLUSIVE, "fingerprint_exclusive")):
        differences += differ(
            recorded, fingerprint(members(ours, way, names, count_zero=True)), expect[recorded]
        )
    for resync, seen in expect["per_resync_method"].items():
        if seen and seen.get("expected_in_nrt"):
            differences += differ(
                resync, check_fingerprint(seen["expected_in_nrt"], seen["computed"]), seen["check"]
            )
    return differences


def _pod(doc: dict[str, Any]) -> Pod:
    pod = pod_from_manifest(doc, defaults=False)
    if isinstance(pod, ManifestError):
        raise ValueError(str(pod))
    return pod


BY_TYPE: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "podset": podset,
    "method": lambda case: method(case) + check_method(case),
}
