"""Refusals as short English: the text that nodes are counted by, and the one line of the Kubernetes event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from shared.domain.quantity import format_amount
from shared.domain.refusal import Reason, Refusal

MOST_TEXTS = 8
_NAMING = {
    Reason.TAINT,
    Reason.NODE_SELECTOR,
    Reason.REPORT_MALFORMED,
    Reason.POLICY_UNKNOWN,
    Reason.POLICY_MISMATCH,
    Reason.SET_ASIDE,
    Reason.UNSUPPORTED,
    Reason.NOMINATED,
    Reason.HOST_PORT,
    Reason.POD_AFFINITY,
    Reason.POD_ANTI_AFFINITY,
    Reason.TOPOLOGY_SPREAD,
    Reason.VOLUME_UNBOUND,
    Reason.VOLUME_NOT_OURS,
    Reason.VOLUME_IN_USE,
    Reason.VOLUME_ELSEWHERE,
    Reason.VOLUME_LIMIT,
}
_ZONAL = {Reason.NO_SINGLE_ZONE: "no single zone with", Reason.NO_ZONE_SET: "no zone set with"}


def headline(refusal: Refusal) -> str:
    """The reason with its amounts but without its node: equal for nodes that refuse alike."""
    return _headline(refusal.reason, refusal.resource, refusal.asked, refusal.subject)


@lru_cache(maxsize=1024)
def _headline(reason: Reason, resource: str, amount: int, subject: str) -> str:
    asked = f"{format_amount(resource, amount)} {resource}"
    together = f" {subject}" if subject else ""
    if reason in _ZONAL and resource:
        return f"{_ZONAL[reason]} {asked} free{together}"
    if reason is Reason.NODE_RESOURCE:
        return f"too little {resource}"
    if reason is Reason.TOO_LITTLE_FREE:
        return f"less than {asked} free for exclusive use"
    if reason is Reason.NEVER_ALIGNED:
        return f"no zone set with {asked}{together}" if subject else f"no zone as large as {asked}"
    if reason is Reason.SMT_ALIGNMENT:
        return f"{asked} are not a whole number of physical cores"
    return f"{reason}: {subject}" if reason in _NAMING else str(reason)


def grouped(refusals: Sequence[Refusal]) -> dict[str, list[Refusal]]:
    """By headline."""
    groups: dict[str, list[Refusal]] = {}
    for each in refusals:
        groups.setdefault(headline(each), []).append(each)
    return groups


def line(nodes: int, groups: Mapping[str, list[Refusal]]) -> str:
    """`0/200 nodes: 131 no single zone with 8 cpu free (best: 6 on n17/zone 1), 69 too little memory`."""
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    texts = [f"{len(group)} {text}{_best(group)}" for text, group in ordered[:MOST_TEXTS]]
    rest = sum(len(group) for _, group in ordered[MOST_TEXTS:])
    if rest:
        texts.append(f"{rest} for other reasons")
    return f"0/{nodes} nodes: " + (", ".join(texts) or "the cluster has no nodes")


def _best(group: Sequence[Refusal]) -> str:
    zonal = [each for each in group if each.best_zone is not None]
    if not zonal:
        return ""
    best = min(zonal, key=lambda each: (-each.best, each.node))
    return f" (best: {format_amount(best.resource, best.best)} on {best.node}/zone {best.best_zone})"
