"""The pod fingerprint `pfp0v001`: a short text that two sides compare to know that they see the same pods on a node.

Of each pod only namespace and name count, doubles included; two specs under one name collide by design. Which pods
belong to the set depends on the method: `all`, or `with-exclusive-resources`, which an exporter decides from
allocations and a scheduler from pod specs. This module must not know where the pods come from.
Source: k8stopologyawareschedwg/podfingerprint; scheduler-plugins noderesourcetopology (exclusive rule).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import xxhash

from shared.domain.pod import Pod
from shared.domain.report import Placement
from shared.domain.resources import CPU, MEMORY, is_hugepages, is_native

Method = Literal["all", "with-exclusive-resources"]
Verdict = Literal["match", "mismatch", "malformed", "incompatible-version"]

ALL: Method = "all"
EXCLUSIVE: Method = "with-exclusive-resources"
PREFIX = "pfp0"
VERSION = "v001"
_MIN_CHARS = 16


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of (namespace, name) pairs in any order; 24 characters."""
    hashes = sorted(_pod_hash(namespace, name) for namespace, name in pods)
    stream = b"".join(value.to_bytes(8, "little") for value in hashes)
    return f"{PREFIX}{VERSION}{xxhash.xxh64_intdigest(stream):016x}"


def _pod_hash(namespace: str, name: str) -> int:
    seed = xxhash.xxh64_intdigest(namespace.encode("utf-8", "surrogatepass"))
    return xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass"), seed)


def check(expected: str, computed: str) -> Verdict:
    """Compare a published fingerprint with a computed one, as podfingerprint's `Check` does."""
    if len(expected.encode("utf-8", "surrogatepass")) < _MIN_CHARS or not expected.startswith(PREFIX):
        return "malformed"
    if expected[4:8] != VERSION:
        return "incompatible-version"
    return "match" if expected == computed else "mismatch"


def members(
    pods: Iterable[Pod], method: str, node_resources: Collection[str], *, count_zero: bool = False
) -> list[tuple[str, str]]:
    """The (namespace, name) pairs that a scheduler expects in the fingerprint of a node, from the specs of its pods.

    `node_resources` are the resource names in the node's zones. Any method but `with-exclusive-resources` means all.
    """
    counted = (pod for pod in pods if method != EXCLUSIVE or spec_is_exclusive(pod, node_resources, count_zero))
    return [(pod.namespace, pod.name) for pod in counted]


def spec_is_exclusive(pod: Pod, node_resources: Collection[str], count_zero: bool = False) -> bool:
    """Does the spec ask for something that a node of these resources gives exclusively?

    Ordinary init containers do not count. A device counts for every class of service, cpu in whole numbers, memory
    and hugepages only for Guaranteed pods. `count_zero` lets a request of zero devices count, as scheduler-plugins
    does and no exporter can see.
    """
    guaranteed = pod.qos == "Guaranteed"
    return any(
        _is_exclusive(resource, amount, guaranteed, node_resources, count_zero)
        for container in pod.containers
        if container.kind != "init"
        for resource, amount in container.requests.items()
    )


def _is_exclusive(resource: str, amount: int, guaranteed: bool, node_resources: Collection[str], count_zero: bool) -> bool:
    if not is_native(resource):
        return resource in node_resources and (amount > 0 or count_zero)
    if not guaranteed or amount <= 0:
        return False
    return amount % 1000 == 0 if resource == CPU else resource == MEMORY or is_hugepages(resource)


def placements_are_exclusive(placements: Iterable[Placement]) -> bool:
    """The exporter's predicate for the placements of one pod: a CPU, or memory or a device with a known zone."""
    return any(held.amount > 0 and held.zones for placement in placements for held in placement.held)
