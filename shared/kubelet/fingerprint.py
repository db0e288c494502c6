"""The pod fingerprint `pfp0v001`: a short text by which two sides check that they see the same pods
on a node.

Only namespace and name of each pod count, duplicates included; two specs under one name collide by
design. The method decides which pods belong to the set: `all`, or `with-exclusive-resources`, which
an exporter derives from allocations and a scheduler from pod specs. This module does not know the
origin of the pods. Source: k8stopologyawareschedwg/podfingerprint; scheduler-plugins
noderesourcetopology (exclusive rule).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import xxhash

Method = Literal["all", "with-exclusive-resources"]
Verdict = Literal["match", "mismatch", "malformed", "incompatible-version"]

ALL: Method = "all"
EXCLUSIVE: Method = "with-exclusive-resources"
PREFIX = "pfp0"
VERSION = "v001"
_MIN_CHARS = 16


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of (namespace, name) pairs in any order: 24 characters."""
    hashes = sorted(_pod_hash(namespace, name) for namespace, name in pods)
    stream = b"".join(value.to_bytes(8, "little") for value in hashes)
    return f"{PREFIX}{VERSION}{xxhash.xxh64_intdigest(stream):016x}"


def _pod_hash(namespace: str, name: str) -> int:
    seed = xxhash.xxh64_intdigest(namespace.encode("utf-8", "surrogatepass"))
    return xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass"), seed)


def container_hash(namespace: str, pod: str, container: str) -> int:
    """Return the hash by which numaplacement orders containers: XXH64 of the names, between them a
    zero byte."""
    name = f"{namespace}\0{pod}\0{container}"
    return xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass"))


def check(expected: str, computed: str) -> Verdict:
    """Compare a published fingerprint with a computed one, as podfingerprint's `Check` does."""
    if len(expected.encode("utf-8", "surrogatepass")) < _MIN_CHARS or not expected.startswith(
        PREFIX
    ):
        return "malformed"
    if expected[4:8] != VERSION:
        return "incompatible-version"
    return "match" if expected == computed else "mismatch"
