"""Refusals as short English: the text that nodes are counted by, and the one line of the Kubernetes
event.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.quantity import format_amount
from shared.domain.refusal import Reason, Refusal

WITHIN = "known within bounds only: "
_BOUNDS = re.compile(rf" \({WITHIN}[^)]*\)|; {WITHIN}[^)]*(?=\))")

MOST_TEXTS = 8
MOST_NAMES = 3
"""Of what is known within bounds only, for one text."""
_ZONAL: dict[str, str] = {
    Reason.NO_SINGLE_ZONE: "no single zone with",
    Reason.NO_ZONE_SET: "no zone set with",
}


def headline(refusal: Refusal) -> str:
    """Return the text that events count nodes by: equal for nodes that refuse alike."""
    if refusal.phrase:
        return refusal.phrase
    return _headline(refusal.reason, refusal.resource, refusal.asked, refusal.subject)


@lru_cache(maxsize=1024)
def _headline(reason: str, resource: str, amount: int, subject: str) -> str:
    asked = f"{format_amount(resource, amount)} {resource}"
    together = f" {subject}" if subject else ""
    if reason in _ZONAL and resource:
        return f"{_ZONAL[reason]} {asked} free{together}"
    if reason == Reason.TOO_LITTLE_FREE:
        return f"less than {asked} free for exclusive use"
    if reason == Reason.NEVER_ALIGNED:
        return f"no zone set with {asked}{together}" if subject else f"no zone as large as {asked}"
    if reason == Reason.SMT_ALIGNMENT:
        return f"{asked} are not a whole number of physical cores"
    return str(reason)


def grouped(refusals: Sequence[Refusal]) -> dict[str, list[Refusal]]:
    """By headline."""
    groups: dict[str, list[Refusal]] = {}
    for each in refusals:
        groups.setdefault(headline(each), []).append(each)
    return groups


def within(names: Collection[str]) -> str:
    """Behind a sentence: ` (known within bounds only: device picks)`; nothing where nothing is left
    open.
    """
    return f" ({WITHIN}{', '.join(names)})" if names else ""


def line(
    nodes: int, groups: Mapping[str, list[Refusal]], bounds: Mapping[str, Collection[str]]
) -> str:
    """`0/200 nodes: 131 no single zone with 8 cpu free (best: 6 on n17/zone 1; known within bounds
    only: device picks), 69 too little memory`. `bounds` are names by the text of a group."""
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    texts = [
        f"{len(group)} {with_remarks(text, _best(group), bounds.get(text, ()))}"
        for text, group in ordered[:MOST_TEXTS]
    ]
    rest = sum(len(group) for _, group in ordered[MOST_TEXTS:])
    if rest:
        texts.append(f"{rest} for other reasons")
    return f"0/{nodes} nodes: " + (", ".join(texts) or "the cluster has no nodes")


def with_remarks(text: str, best: str, bounds: Collection[str]) -> str:
    """With what comes nearest, and what is known within bounds only; few names, as it may stand in
    a Kubernetes event.
    """
    names = sorted(bounds)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    remarks = [best, f"{WITHIN}{', '.join(names[:MOST_NAMES])}{more}" if names else ""]
    told = "; ".join(filter(None, remarks))
    return f"{text} ({told})" if told else text


def without_bounds(line: str) -> str:
    """The line as it was written before it told what is known within bounds only: logs hold such
    lines for ever.
    """
    return _BOUNDS.sub("", line)


def _best(group: Sequence[Refusal]) -> str:
    zonal = [each for each in group if each.best_zone is not None]
    if not zonal:
        return ""
    best = min(zonal, key=lambda each: (-each.best, each.node))
    return f"best: {format_amount(best.resource, best.best)} on {best.node}/zone {best.best_zone}"


def excluded(pod: Pod, cause: str) -> str:
    """Return why nodes excluded for pods of this class take none, for example `node(s) excluded for
    pods that request cpu 8, memory 128Mi after a kubelet rejection`."""
    requests = effective_request(pod)
    amounts = [f"{name} {format_amount(name, requests[name])}" for name in sorted(requests)]
    after = {
        "rejected": "a kubelet rejection",
        "denied": "a denied binding",
        "contested": "lost races with other schedulers",
    }[cause]
    return f"node(s) excluded for pods that request {', '.join(amounts)} after {after}"
