"""Refusals in kube-scheduler's words: a phrase per reason, and the line that the pod's condition
and the Kubernetes Event show.

Where kube-scheduler has a phrase, this module uses exactly that phrase (kube-scheduler 1.36), so
that dashboards, greps and web searches work. NUMA reasons have the same form. Constraints define
their own phrases (`Refusal.phrase`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from shared.domain.quantity import format_amount
from shared.domain.refusal import Reason, Refusal

UNDECIDED = "undecided: "
# Undecided names that one phrase shows.
MOST_NAMES = 3
MOST_PHRASES = 8
PREEMPTION = " preemption: "
_NOTES = re.compile(rf" \({UNDECIDED}[^)]*\)|; {UNDECIDED}[^)]*(?=\))")

# `{subject}` is the label, field or object concerned; `{asked}` is the requested amount.
PHRASES: dict[str, str] = {
    Reason.INVALID_POD: "invalid pod: {subject}",
    Reason.UNSUPPORTED: "unsupported constraint: {subject}",
    Reason.KUBELET_FAILS: "node(s) had a kubelet that would fail: {subject}",
    Reason.NEVER_ALIGNED: "node(s) had no NUMA zone as large as {asked} {resource}",
    Reason.NO_SINGLE_ZONE: "node(s) had no NUMA zone with {asked} free {resource}",
    Reason.NO_ZONE_SET: "node(s) had no set of NUMA zones with {asked} free {resource}",
    Reason.TOO_LITTLE_FREE: "node(s) had less than {asked} {resource} free for exclusive use",
    Reason.SMT_ALIGNMENT: (
        "node(s) gave whole physical cores only, and {asked} {resource} is no multiple"
    ),
    Reason.NOT_ON_EVERY_BRANCH: "node(s) might reject the pod while other pods are unconfirmed",
    Reason.BRANCH_LIMIT: "node(s) had too many possible states to check",
}
# Phrases for zone reasons if no single resource is short.
_WITHOUT_RESOURCE: dict[str, str] = {
    Reason.NO_SINGLE_ZONE: "node(s) had no NUMA zone for the pod",
    Reason.NO_ZONE_SET: "node(s) had no set of NUMA zones for the pod",
    Reason.NEVER_ALIGNED: "node(s) had no NUMA zones as large as the pod",
}


def headline(refusal: Refusal) -> str:
    """Return the phrase for a reason, without the node: nodes with equal phrases are counted
    together.
    """
    if refusal.phrase:
        return refusal.phrase
    return _headline(refusal.reason, refusal.resource, refusal.asked, refusal.subject)


@lru_cache(maxsize=1024)
def _headline(reason: str, resource: str, amount: int, subject: str) -> str:
    if reason in _WITHOUT_RESOURCE and not resource:
        phrase = _WITHOUT_RESOURCE[reason]
        return f"{phrase} ({subject})" if subject else phrase
    if reason == Reason.NEVER_ALIGNED and subject:
        asked = f"{format_amount(resource, amount)} {resource}"
        return f"node(s) had no set of NUMA zones with {asked} {subject}"
    text = PHRASES.get(reason, reason).format(
        subject=subject, resource=resource, asked=format_amount(resource, amount)
    )
    return f"{text} {subject}" if reason in _WITHOUT_RESOURCE and subject else text


def within(names: Collection[str]) -> str:
    """Return a suffix for a sentence, for example ` (undecided: device picks)`; "" for no names."""
    return f" ({UNDECIDED}{', '.join(names)})" if names else ""


def line(
    nodes: int,
    counts: Mapping[str, int],
    best: Callable[[str], str],
    bounds: Mapping[str, Collection[str]],
) -> str:
    """Return the line for all nodes. `counts` are nodes by phrase, in order of the phrases; `best`
    returns the nearest zone of a phrase, `bounds` are the undecided names by phrase.

    Example: `0/200 nodes are available: 131 node(s) had no NUMA zone with 8 free cpu (best: 6 on
    n17/zone 1; undecided: device picks), 69 Insufficient memory.`
    """
    ordered = sorted(counts, key=counts.__getitem__, reverse=True)
    texts = [
        f"{counts[phrase]} {with_remarks(phrase, best(phrase), bounds.get(phrase, ()))}"
        for phrase in ordered[:MOST_PHRASES]
    ]
    rest = sum(counts[phrase] for phrase in ordered[MOST_PHRASES:])
    if rest:
        texts.append(f"{rest} node(s) had other reasons")
    return available(nodes, ", ".join(texts) or "the cluster has no nodes")


def available(nodes: int, reasons: str) -> str:
    """Return kube-scheduler's sentence around the reasons."""
    return f"0/{nodes} nodes are available: {reasons}."


def preemption(nodes: int, may_help: int) -> str:
    """Return kube-scheduler's sentence on preemption, which might help on `may_help` nodes."""
    parts = []
    if may_help:
        parts.append(f"{may_help} No preemption victims found for incoming pod")
    if nodes > may_help:
        parts.append(f"{nodes - may_help} Preemption is not helpful for scheduling")
    return PREEMPTION + available(nodes, ", ".join(parts)) if parts else ""


def with_remarks(phrase: str, best: str, bounds: Collection[str]) -> str:
    """Add the nearest node (`best`) and the undecided names to a phrase. The names are few, because
    a Kubernetes Event is short.
    """
    names = sorted(bounds)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    undecided = f"{UNDECIDED}{', '.join(names[:MOST_NAMES])}{more}" if names else ""
    remarks = "; ".join(filter(None, (best, undecided)))
    return f"{phrase} ({remarks})" if remarks else phrase


def without_notes(message: str) -> str:
    """Return the line without its undecided names."""
    return _NOTES.sub("", message)


def without_preemption(message: str) -> str:
    """Return the line without its sentence on preemption, which depends on other pods."""
    return message.partition(PREEMPTION)[0]


def best_zone(resource: str, amount: int, node: str, zone: int) -> str:
    """Return the zone with the largest free amount as a remark."""
    return f"best: {format_amount(resource, amount)} on {node}/zone {zone}"
