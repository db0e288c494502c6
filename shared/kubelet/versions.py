"""Rules of admission that differ between minor versions of the kubelet.

1. `RULES` has one entry for each minor from 1.27 to 1.37. Everything else in the model is the same
   for all of them: merge, policies, and allocation of CPUs, memory and devices have not changed
   since 1.27.

2. A version names its minor (`rules_of`). Some versions may have one of several rule sets: a
   version that cannot be read may be any minor, a pre-release may still have the rules of the minor
   before, and OpenShift carries a later change in some builds of a patch release. A decision must
   be right under each of them.

3. Minors outside the table have the rules of the nearest one. Of `RECORDED` minors, decisions of
   the real managers are replayed against the model (tests/vectors); the others are read from source
   or release notes.

Sources: the kubelet's code of each minor, and the pull requests that each field names.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

# Minor versions whose recorded decisions are replayed against the model.
RECORDED = (31, 32, 33, 34, 35, 36)

Level = Literal["alpha", "beta", "stable"]
Readmission = Literal["spec", "status", "allocated"]
PodLevel = Literal["ignored", "QoS only", "skipped"]


class KubeletRules(msgspec.Struct, frozen=True):
    """What one minor version does.

    `sidecars`: the managers know restartable init containers; without it the kubelet refuses such
    pods (KEP-753). `memory_group_check`: the Memory Manager refuses a mask that touches a zone of
    another group (PR 123443). `memory_compared_by`: how it compares a stored state with the machine
    (PR 127074). `device_hint_zones`: over which zones device hints run (PR 138244).
    `pod_level`: `ignored` (the QoS class follows from the containers), `QoS only` (the API server's
    QoS class counts, and containers get exclusive CPUs and memory), or `skipped` by the CPU and
    Memory Manager (PR 133279). `readmission`: from where the request of a pod is read when the
    kubelet starts again; `status` is status.allocatedResources (KEP-1287). `lists_sidecars` is
    about podresources List (PR 120718). `uncore_rounds_up`: an odd number of CPUs fits a part of an
    uncore cache (PR 131850). `topology_options` and `cpu_options` map each option that the version
    knows to its level.

    No rule here: resizes in place, because no version resizes what a manager has pinned; and the
    state files, because 1.37 writes the old form, too.
    """

    minor: int
    sidecars: bool
    memory_group_check: bool
    memory_compared_by: Literal["zone", "group"]
    device_hint_zones: Literal["all", "bearing"]
    pod_level: PodLevel
    readmission: Readmission
    lists_sidecars: bool
    uncore_rounds_up: bool
    topology_options: dict[str, Level]
    cpu_options: dict[str, Level]

    @property
    def version(self) -> str:
        """Return the minor version as people write it, such as `1.36`."""
        return f"1.{self.minor}"


# Per option: the minors from which it is alpha, beta and stable, None for never so far.
_TOPOLOGY_OPTIONS: dict[str, tuple[int | None, int | None, int | None]] = {
    "prefer-closest-numa-nodes": (26, 28, 32),
    "max-allowable-numa-nodes": (None, 31, 35),
}
_CPU_OPTIONS: dict[str, tuple[int | None, int | None, int | None]] = {
    "full-pcpus-only": (22, 23, 33),
    "distribute-cpus-across-numa": (23, 33, None),
    "align-by-socket": (25, None, None),
    "distribute-cpus-across-cores": (31, None, None),
    "strict-cpu-reservation": (32, 33, 35),
    "prefer-align-cpus-by-uncorecache": (32, 34, 36),
}


def _levels(
    table: dict[str, tuple[int | None, int | None, int | None]], minor: int
) -> dict[str, Level]:
    levels: dict[str, Level] = {}
    stages: tuple[Level, Level, Level] = ("alpha", "beta", "stable")
    for name, since in table.items():
        for level, first in zip(stages, since, strict=True):
            if first is not None and first <= minor:
                levels[name] = level
    return levels


def _pod_level(minor: int) -> PodLevel:
    if minor >= 34:
        return "skipped"
    return "QoS only" if minor >= 29 else "ignored"


def _readmission(minor: int) -> Readmission:
    if minor >= 35:
        return "allocated"
    return "status" if minor >= 33 else "spec"


def _rules(minor: int) -> KubeletRules:
    return KubeletRules(
        minor=minor,
        sidecars=minor >= 29,
        memory_group_check=minor >= 32,
        memory_compared_by="group" if minor >= 32 else "zone",
        device_hint_zones="bearing" if minor >= 36 else "all",
        pod_level=_pod_level(minor),
        readmission=_readmission(minor),
        lists_sidecars=minor >= 30,
        uncore_rounds_up=minor >= 34,
        topology_options=_levels(_TOPOLOGY_OPTIONS, minor),
        cpu_options=_levels(_CPU_OPTIONS, minor),
    )


RULES = {minor: _rules(minor) for minor in range(27, 38)}
OLDEST, NEWEST = min(RULES), max(RULES)
# The rules of the vectors that name no version, and of machine files that name none.
DEFAULT = RULES[36]

_VERSION = re.compile(r"v?1\.(\d{1,4})(?:\.(\d{1,9}))?(.*)", re.ASCII | re.DOTALL)
_PRE_RELEASE = re.compile(r"-(alpha|beta|rc)\b", re.ASCII)
# Builds of OpenShift end in a commit (v1.35.4+2b7e151); those of k3s, RKE2, EKS and GKE do not.
_OPENSHIFT = re.compile(r"\+[0-9a-f]{7,40}(-dirty)?", re.ASCII)
# OpenShift's builds have device hints over bearing zones in every patch after this one, and in some
# builds of it.
_OPENSHIFT_DEVICE_HINTS = (35, 4)


@lru_cache(maxsize=1024)
def rules_of(version: str) -> tuple[KubeletRules, ...]:
    """Return every rule set that a kubelet of this version (status.nodeInfo.kubeletVersion) may
    have: all of them for a version that cannot be read."""
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        return tuple(RULES.values())
    minor, patch, rest = int(match[1]), int(match[2] or 0), match[3]
    nearest = RULES[min(max(minor, OLDEST), NEWEST)]
    if _PRE_RELEASE.match(rest) and OLDEST < minor <= NEWEST:
        return (RULES[minor - 1], nearest)
    if _OPENSHIFT.fullmatch(rest):
        return _carried(nearest, (minor, patch))
    return (nearest,)


def _carried(rules: KubeletRules, release: tuple[int, int]) -> tuple[KubeletRules, ...]:
    if release[0] != _OPENSHIFT_DEVICE_HINTS[0] or release < _OPENSHIFT_DEVICE_HINTS:
        return (rules,)
    carried = msgspec.structs.replace(rules, device_hint_zones="bearing")
    return (carried,) if release > _OPENSHIFT_DEVICE_HINTS else (rules, carried)


def admit_alike(rules: KubeletRules, other: KubeletRules) -> bool:
    """Return whether both admit every pod alike, apart from a restart."""
    fields = ("sidecars", "memory_group_check", "device_hint_zones", "pod_level")
    return all(getattr(rules, field) == getattr(other, field) for field in fields)


def any_rules(versions: tuple[str, ...]) -> tuple[KubeletRules, ...]:
    """Return every rule set of several versions, each once: sources may differ while a node is
    upgraded. Without a version any rule set is possible."""
    named = [version for version in dict.fromkeys(versions) if version]
    possible: list[KubeletRules] = []
    for version in named or [""]:
        possible += [rules for rules in rules_of(version) if rules not in possible]
    return tuple(possible)


def is_recorded(version: str) -> bool:
    """Return whether decisions of this minor version were recorded. An unknown version is not."""
    match = _VERSION.fullmatch(version.strip())
    return match is not None and int(match[1]) in RECORDED and len(rules_of(version)) == 1


def support(version: str) -> str:
    """Return in words what the rules for this version rest on: `recorded`, `modelled`, the nearest
    minor, or `unknown`."""
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        return "unknown: every version is considered"
    minor = int(match[1])
    if minor not in RULES:
        return f"the rules of {RULES[min(max(minor, OLDEST), NEWEST)].version}, the nearest version"
    if minor in RECORDED:
        return "recorded"
    return f"modelled as {RULES[minor].version}, without recorded decisions"
