"""Reduction of a report to the size that the topology-store reads.

A pod may have some 20,000 containers (an API server takes objects of 1.5 MB), each with memory of
its own. No pod may silence its node, so a report that is too large loses detail in this order:

1. The pods with the most bytes are listed as one entry each (container name empty) with the sums of
   their containers. A reader can confirm such a pod as a whole.
2. What the checkpoints have beyond the list becomes one entry for each pod uid.
3. Pods that hold nothing are left out.
4. What the node's agent enforces is left out.
5. All placements are left out (`placements` None): no pod can be confirmed from this report.

The zones' amounts are counted before, and always exact. Must not know why a report is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from services.exporter.placements import MILLI
from shared.domain.idlist import format_ids, parse_ids
from shared.domain.report import (
    MAX_REPORT_BYTES,
    POD_LEVEL,
    ClaimedDevice,
    Placement,
    Report,
    ZonedAmount,
)
from shared.domain.resources import CPU
from shared.kubelet.cpuset import format_cpus, parse_cpus, union

# Limits of the topology-store (services/topology_store/validation.py).
MAX_ENTRIES = 4096
MAX_AMOUNTS = 256
# The moment of reading and the exporter's name change from report to report.
MARGIN_BYTES = 1 << 10
_encoder = msgspec.json.Encoder()


class ReportTooLarge(ValueError):
    """A node's inventory alone exceeds the size limit; names the sizes and the fix."""


def fitted(report: Report) -> tuple[Report, str]:
    """Return the report, reduced if needed, and a text that says what was cut ("" if nothing).

    Raises ReportTooLarge if the report is too large without any pod.
    """
    if _fits(report):
        return report, ""
    sizes = _sizes_by_pod(report.placements or ())
    merged: set[tuple[str, str]] = set()
    candidates = sorted(sizes, key=lambda key: -sizes[key])
    while candidates:
        # Half of the remaining pods at once: few encodings, and pods of usual size stay whole.
        count = (len(candidates) + 1) // 2 if merged else 1
        merged.update(candidates[:count])
        candidates = candidates[count:]
        smaller = _with_merged(report, merged)
        if _fits(smaller):
            return smaller, f"{_named(merged)} listed as one entry each"
    smaller = _with_merged(report, merged)
    smaller = msgspec.structs.replace(smaller, hidden=tuple(_merged_by_uid(smaller.hidden)))
    text = "each pod listed as one entry"
    if _fits(smaller):
        return smaller, text
    holding = tuple(entry for entry in smaller.placements or () if entry.held or entry.claims)
    count = len(smaller.placements or ()) - len(holding)
    smaller = msgspec.structs.replace(smaller, placements=holding)
    if _fits(smaller):
        return smaller, f"{text}, {count} pods that hold nothing left out"
    smaller = msgspec.structs.replace(smaller, enforced=None)
    if _fits(smaller):
        return smaller, f"{text}, what the agent enforces left out"
    smaller = msgspec.structs.replace(
        report, placements=None, hidden=(), checkpoints=(), enforced=None
    )
    if _fits(smaller):
        return smaller, f"placements of all {len(sizes)} pods left out"
    raise ReportTooLarge(
        f"the report has {len(_encoder.encode(smaller))} bytes without any pod; topology-store "
        f"reads at most {MAX_REPORT_BYTES}; leave resources out with --exclude-resource"
    )


def _fits(report: Report) -> bool:
    for entries in (report.placements or (), report.hidden, report.enforced or ()):
        if len(entries) > MAX_ENTRIES:
            return False
        if any(max(len(entry.held), len(entry.claims)) > MAX_AMOUNTS for entry in entries):
            return False
    return len(_encoder.encode(report)) <= MAX_REPORT_BYTES - MARGIN_BYTES


def _sizes_by_pod(placements: Iterable[Placement]) -> dict[tuple[str, str], int]:
    sizes: dict[tuple[str, str], int] = {}
    for entry in placements:
        key = entry.namespace, entry.pod
        sizes[key] = sizes.get(key, 0) + len(_encoder.encode(entry))
    return sizes


def _named(pods: set[tuple[str, str]]) -> str:
    first = "/".join(min(pods))
    return f"pod {first} is" if len(pods) == 1 else f"pod {first} and {len(pods) - 1} more are"


def _with_merged(report: Report, pods: set[tuple[str, str]]) -> Report:
    entries: dict[tuple[str, str], list[Placement]] = {}
    for entry in report.placements or ():
        entries.setdefault((entry.namespace, entry.pod), []).append(entry)
    placements: list[Placement] = []
    for key, pod_entries in entries.items():
        placements += [_merged(pod_entries)] if key in pods else pod_entries
    hidden = [entry for entry in report.hidden if (entry.namespace, entry.pod) not in pods]
    merged_hidden = [entry for entry in report.hidden if (entry.namespace, entry.pod) in pods]
    return msgspec.structs.replace(
        report, placements=tuple(placements), hidden=(*_merged_by_uid(merged_hidden), *hidden)
    )


def _merged_by_uid(entries: Iterable[Placement]) -> list[Placement]:
    by_pod: dict[tuple[str, str, str], list[Placement]] = {}
    for entry in entries:
        by_pod.setdefault((entry.namespace, entry.pod, entry.pod_uid), []).append(entry)
    return [_merged(pod_entries) for pod_entries in by_pod.values()]


def _merged(entries: Sequence[Placement]) -> Placement:
    if len(entries) == 1:
        return entries[0]
    amounts: dict[tuple[str, tuple[int, ...]], list[ZonedAmount]] = {}
    claims: list[ClaimedDevice] = []
    for entry in entries:
        claims += entry.claims
        for amount in entry.held:
            amounts.setdefault((amount.resource, amount.zones), []).append(amount)
    total = tuple(_sum(amounts[key]) for key in sorted(amounts))
    return msgspec.structs.replace(
        entries[0], container=POD_LEVEL, held=total, claims=tuple(dict.fromkeys(claims))
    )


def _sum(amounts: Sequence[ZonedAmount]) -> ZonedAmount:
    first = amounts[0]
    if first.resource == CPU and first.ids:
        cpus = union(parse_cpus(held.ids) for held in amounts)
        return ZonedAmount(CPU, first.zones, cpus.bit_count() * MILLI, format_cpus(cpus))
    if first.ids:
        ids = sorted({device for held in amounts for device in parse_ids(held.ids)})
        return ZonedAmount(first.resource, first.zones, len(ids), format_ids(ids))
    return ZonedAmount(first.resource, first.zones, sum(held.amount for held in amounts))
