"""How the plugin reads an object's expected fingerprint, and which pods it counts.

`shared.kubelet.fingerprint` has the hash. Only names count: a pod that was created again under its
old name looks the same (R13).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from plugins.upstream_compat.exclusive import is_exclusive
from plugins.upstream_compat.nrt import (
    FINGERPRINT_ANNOTATION,
    FINGERPRINT_ATTRIBUTE,
    METHOD_ATTRIBUTE,
    Nrt,
)
from plugins.upstream_compat.pod import Pod
from shared.kubelet.fingerprint import fingerprint

ResyncMethod = Literal["Autodetect", "All", "OnlyExclusiveResources"]
InformerMode = Literal["Shared", "Dedicated"]


class Expectation(msgspec.Struct, frozen=True):
    """The fingerprint of an object (empty for none), and whether only exclusive pods are in it."""

    fingerprint: str
    only_exclusive: bool


def expectation(nrt: Nrt, method: ResyncMethod) -> Expectation:
    """Return the attribute, or else the legacy annotation, which always means all pods, whatever
    the method.
    """
    attribute = nrt.attribute(FINGERPRINT_ATTRIBUTE)
    if attribute is None:
        return Expectation(nrt.annotations.get(FINGERPRINT_ANNOTATION, ""), only_exclusive=False)
    if method == "Autodetect":
        return Expectation(attribute, nrt.attribute(METHOD_ATTRIBUTE) == "with-exclusive-resources")
    return Expectation(attribute, method == "OnlyExclusiveResources")


def is_relevant(pod: Pod, mode: InformerMode) -> bool:
    """Return whether a pod of the lister counts. Dedicated also counts finished pods, because
    podresources may still list them.
    """
    return (
        pod.phase == "Running"
        if mode == "Shared"
        else pod.phase != "Pending" and bool(pod.node_name)
    )


def computed(pods: Iterable[Pod], only_exclusive: bool, zone_resources: Collection[str]) -> str:
    """Return the fingerprint of the relevant pods of one node."""
    return fingerprint(
        (pod.namespace, pod.name)
        for pod in pods
        if not only_exclusive or is_exclusive(pod, zone_resources)
    )
