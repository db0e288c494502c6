"""Policies and scopes of the kubelet's Topology Manager: their names (KEP-693, kubelet 1.36), and
every other spelling in use.

Must not know what a policy admits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, get_args

Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]

POLICIES: tuple[str, ...] = get_args(Policy)
"""The most permissive first."""
SCOPES: tuple[str, ...] = get_args(Scope)

NONE: Final = "none"
BEST_EFFORT: Final = "best-effort"
RESTRICTED: Final = "restricted"
SINGLE_NUMA_NODE: Final = "single-numa-node"

_SPELT = {"": NONE} | {name.replace("-", ""): name for name in POLICIES}
_SUFFIXES = {"podlevel": "pod", "containerlevel": "container"}


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[str, str] | None:
    """(policy, scope or "") of any spelling in use: kubelet's, NodeResourceTopology's,
    Koordinator's; None when unknown.
    """
    name, scope = text.strip().lower().replace("-", ""), ""
    for suffix, found in _SUFFIXES.items():
        if name.endswith(suffix):
            name, scope = name[: -len(suffix)], found
    return (_SPELT[name], scope) if name in _SPELT else None
