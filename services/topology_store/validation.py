"""Is this message a report that can be believed at all? Bytes in, a report or a refusal that names field and remedy out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from shared.bus import subjects
from shared.domain.report import Report, Zone

ZONE_ID_LIMIT = 1024
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES = ("container", "pod")
AMOUNT_LIMIT = 2**62
# The node's name and its boot id become names in the log, the node's also a path of the Kubernetes API.
NAME_LIMIT = 253
BOOT_ID_LIMIT = 128
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*")

_decoder = msgspec.json.Decoder(Report)
# Text that is no UTF-8, and values nested beyond all measure in a field that nobody reads, are errors of Python's own.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class RefusedReport(msgspec.Struct, frozen=True):
    """A message that is not taken in; `node` is the subject's."""

    node: str
    problem: str


def read(subject: str, data: bytes) -> Report | RefusedReport:
    """Decode and check one message of the report stream."""
    node = subjects.unescape(subject.rsplit(".", 1)[-1])
    try:
        report = _decoder.decode(data)
    except _UNREADABLE as error:
        return RefusedReport(node, f"not a report: {error}; upgrade the exporter of this node, or stop what else publishes")
    problem = problem_of(node, report)
    if problem is None and report.source != "bus":
        problem = f"source: {report.source[:40]!r} over the bus; exporters leave it out"
    return report if problem is None else RefusedReport(node, problem)


def problem_of(node: str, report: Report) -> str | None:
    """The first thing that is wrong with a report that came for a node."""
    return next(_problems(node, report), None)


def _problems(node: str, report: Report) -> Iterator[str]:
    if len(node) > NAME_LIMIT or not _NAME.fullmatch(node):
        yield f"node: {node[:40]!r} is no name of a node (letters, digits, '-', '_' and '.', at most {NAME_LIMIT})"
    if report.node != node:
        yield f"node: {report.node!r} published as {node!r}; an exporter may publish only as its own node"
    if not report.boot_id:
        yield "boot_id: empty; the exporter cannot read it, see its --boot-id-file"
    if len(report.boot_id) > BOOT_ID_LIMIT or not (report.boot_id.isascii() and report.boot_id.isprintable()):
        yield f"boot_id: {report.boot_id[:40]!r} is none (at most {BOOT_ID_LIMIT} printable ASCII characters)"
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
