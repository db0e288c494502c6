"""Policies and scopes of the Topology Manager: their names (KEP-693, kubelet 1.36) and their other
spellings.

This module does not know what a policy admits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, get_args

Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]

# The most permissive first.
POLICIES: tuple[str, ...] = get_args(Policy)
SCOPES: tuple[str, ...] = get_args(Scope)

NONE: Final = "none"
BEST_EFFORT: Final = "best-effort"
RESTRICTED: Final = "restricted"
SINGLE_NUMA_NODE: Final = "single-numa-node"

_SPELT = {"": NONE} | {name.replace("-", ""): name for name in POLICIES}
_SUFFIXES = {"podlevel": "pod", "containerlevel": "container"}


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[str, str] | None:
    """Return (policy, scope or "") for the spellings of the kubelet, NodeResourceTopology and
    Koordinator; None if unknown.
    """
    name, scope = text.strip().lower().replace("-", ""), ""
    for suffix, suffix_scope in _SUFFIXES.items():
        if name.endswith(suffix):
            name, scope = name[: -len(suffix)], suffix_scope
    return (_SPELT[name], scope) if name in _SPELT else None
