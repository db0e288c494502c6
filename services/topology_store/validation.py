"""Is this message a report that can be believed at all? Bytes in, a report or a refusal that names field and remedy out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shared.bus import subjects
from shared.domain.report import Report, Zone

ZONE_ID_LIMIT = 1024
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES = ("container", "pod")
AMOUNT_LIMIT = 2**62

_decoder = msgspec.json.Decoder(Report)


class RefusedReport(msgspec.Struct, frozen=True):
    """A message that is not taken in; `node` is the subject's."""

    node: str
    problem: str


def read(subject: str, data: bytes) -> Report | RefusedReport:
    """Decode and check one message of the report stream."""
    node = subjects.unescape(subject.rsplit(".", 1)[-1])
    try:
        report = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        return RefusedReport(node, f"not a report: {error}; upgrade the exporter of this node, or stop what else publishes")
    problem = next(_problems(node, report), None)
    return report if problem is None else RefusedReport(node, problem)


def _problems(node: str, report: Report) -> Iterator[str]:
    if report.node != node:
        yield f"node: {report.node!r} published as {node!r}; an exporter may publish only as its own node"
    if not report.boot_id:
        yield "boot_id: empty; the exporter cannot read it, see its --boot-id-file"
    if report.policy not in POLICIES:
        yield f"policy: {report.policy!r} is none of {', '.join(POLICIES)}"
    if report.scope not in SCOPES:
        yield f"scope: {report.scope!r} is none of {', '.join(SCOPES)}"
    ids = [zone.id for zone in report.zones]
    if len(set(ids)) != len(ids):
        yield f"zones: an id stands twice in {ids}"
    for zone in report.zones:
        yield from _zone_problems(zone)


def _zone_problems(zone: Zone) -> Iterator[str]:
    if not 0 <= zone.id < ZONE_ID_LIMIT:
        yield f"zones: id {zone.id} is outside 0..{ZONE_ID_LIMIT - 1}"
    for name, amounts in zone.resources.items():
        if not all(0 <= amount <= AMOUNT_LIMIT for amount in (amounts.capacity, amounts.allocatable, amounts.available)):
            yield f"zones[{zone.id}].{name}: negative or absurd amount"
