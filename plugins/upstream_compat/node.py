"""The resource names that a node offers, as the scheduler framework reads `status.allocatable`.

Only presence matters to the plugin; NodeResourcesFit compares quantities of the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from plugins.upstream_compat import reading
from shared.domain.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_hugepages, is_native

ALWAYS_NAMED = frozenset((CPU, MEMORY, PODS, EPHEMERAL_STORAGE))
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = re.compile(
    rf"{_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII
)


def named_resources(node: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that the node's JSON object offers. Raises `InvalidObjectError` for an
    unusable field.
    """
    status = reading.mapping(reading.as_mapping(node, ""), "status", "")
    return offered(reading.mapping(status, "allocatable", "status."))


def offered(allocatable: Iterable[str]) -> frozenset[str]:
    """Return the names that every node has, and those of `allocatable` that the framework keeps as
    scalar resources.
    """
    return ALWAYS_NAMED | {name for name in allocatable if _is_scalar(name)}


def _is_scalar(name: str) -> bool:
    return (
        is_hugepages(name)
        or "kubernetes.io/" in name
        or name.startswith("attachable-volumes-")
        or _is_extended(name)
    )


def _is_extended(name: str) -> bool:
    """As helper.IsExtendedResourceName: a domain that is not Kubernetes', and valid with the prefix
    `requests.` of quotas.
    """
    if (
        is_native(name)
        or name.startswith("requests.")
        or _QUALIFIED.fullmatch(f"requests.{name}") is None
    ):
        return False
    domain, _, rest = name.partition("/")
    return len(f"requests.{domain}") <= 253 and len(rest) <= 63
