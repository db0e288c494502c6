"""Check whether a message is a report that can be believed: bytes in, a report or a refusal that
names field and remedy out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from shared.bus import subjects
from shared.domain.idlist import parse_ids
from shared.domain.policies import POLICIES, SCOPES
from shared.domain.report import (
    MAX_REPORT_BYTES,
    UNKNOWN,
    ClaimedDevice,
    DynamicGroup,
    Placement,
    Report,
    Zone,
    ZonedAmount,
)

# Policies that an exporter reports.
REPORTED = (*POLICIES, UNKNOWN)
CHECKPOINTS = ("cpu", "memory", "devices")
# In millicpu, bytes or counts, as in `shared.domain.fields`. The sum of a node fits into 64 bits.
AMOUNT_LIMIT = 2**56
ZONE_ID_LIMIT = 1024
ZONES = 64
RESOURCES = 64
CONTAINERS = 4096
HELD = 256
# A claim has at most 32 devices, and a pod at most 32 useful claims.
CLAIMED = 4096
OPTIONS = 32
TEXT_LIMIT = 256
DEVICE_GROUPS = 1024
# Characters of a list of CPUs or devices. Readers of such a list bound the ids in it.
IDS_LIMIT = 64 << 10
# A DNS subdomain of 253, a slash, a name of 63 (Kubernetes' qualified names).
RESOURCE_NAME_LIMIT = 317
# The node's name and its boot id become names in the log; the node's name is also a path of the
# Kubernetes API.
NAME_LIMIT = 253
BOOT_ID_LIMIT = 128
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*")
_RESOURCE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/]*")
_POD = re.compile(r"[-A-Za-z0-9._]+")

_decoder = msgspec.json.Decoder(Report)
# Text that is not UTF-8, and values that are nested too deeply in a field that is not read, raise
# Python's own errors.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class RefusedReport(msgspec.Struct, frozen=True):
    """A message that is refused; `node` is the subject's."""

    node: str
    problem: str


def read(subject: str, data: bytes) -> Report | RefusedReport:
    """Decode and check one message of the report stream."""
    node = subjects.reporting(subject)
    if len(data) > MAX_REPORT_BYTES:
        return RefusedReport(
            node, f"a report of {len(data)} bytes; at most {MAX_REPORT_BYTES} are read"
        )
    try:
        report = _decoder.decode(data)
    except _UNREADABLE as error:
        return RefusedReport(
            node,
            (
                f"not a report: {error}; upgrade the exporter of this node, or stop what else "
                "publishes"
            ),
        )
    problem = problem_of(node, report)
    if problem is None and report.source != "bus":
        problem = f"source: {report.source[:40]!r} over the bus; exporters leave it out"
    return report if problem is None else RefusedReport(node, problem)


def problem_of(node: str, report: Report) -> str | None:
    """Return the first problem of a report of a node, or None."""
    return next(_problems(node, report), None)


def _problems(node: str, report: Report) -> Iterator[str]:
    if len(node) > NAME_LIMIT or not _NAME.fullmatch(node):
        yield (
            f"node: {node[:40]!r} is no name of a node (letters, digits, '-', '_' and '.', at "
            f"most {NAME_LIMIT})"
        )
    if report.node != node:
        yield (
            f"node: {report.node!r} published as {node!r}; an exporter may publish only as its "
            "own node"
        )
    if not report.boot_id:
        yield "boot_id: empty; the exporter cannot read it, see its --boot-id-file"
    if len(report.boot_id) > BOOT_ID_LIMIT or not (
        report.boot_id.isascii() and report.boot_id.isprintable()
    ):
        yield (
            f"boot_id: {report.boot_id[:40]!r} is none (at most {BOOT_ID_LIMIT} printable ASCII "
            "characters)"
        )
    if report.boot_time_ms < 0:
        yield f"boot_time_ms: {report.boot_time_ms} is negative"
    if report.policy not in REPORTED:
        yield f"policy: {report.policy[:40]!r} is none of {', '.join(REPORTED)}"
    if report.scope not in SCOPES:
        yield f"scope: {report.scope[:40]!r} is none of {', '.join(SCOPES)}"
    yield from _setting_problems(report)
    ids = [zone.id for zone in report.zones]
    if len(ids) > ZONES:
        yield f"zones: {len(ids)} of them; at most {ZONES}"
    if len(set(ids)) != len(ids):
        yield f"zones: an id appears twice in {ids}"
    for zone in report.zones:
        yield from _zone_problems(zone)
    unknown = sorted(set(report.container_zones or ()) - set(ids))
    if unknown:
        yield f"container_zones: zone {unknown[0]} is none of {ids}"
    yield from _placement_problems(report.placements or (), frozenset(ids))
    yield from _placement_problems(report.hidden, frozenset(ids), hidden=True)
    yield from _placement_problems(report.enforced or (), frozenset(ids))
    yield from _inventory_problems(report)
    yield from _dynamic_problems(report.dynamic or ())


def _setting_problems(report: Report) -> Iterator[str]:
    if len(report.options) > OPTIONS or len(report.tracked) > RESOURCES:
        yield f"options, tracked: more than {OPTIONS} options or {RESOURCES} resources"
    for name in report.tracked:
        yield from _resource_name_problems("tracked", name)
    managers = (
        report.cpu_policy,
        report.memory_policy,
        report.kubelet_version,
        report.enforcer,
        *report.checkpoints[:TEXT_LIMIT],
    )
    texts = (
        report.exporter,
        report.fingerprint,
        report.fingerprint_method,
        *report.options,
        *report.options.values(),
        *managers,
    )
    if any(len(text) > TEXT_LIMIT or not text.isprintable() for text in texts):
        yield (
            f"exporter, options, fingerprint, managers: a text of more than {TEXT_LIMIT} "
            "printable characters"
        )
    if not 0 <= report.max_numa_nodes <= ZONE_ID_LIMIT:
        yield f"max_numa_nodes: {report.max_numa_nodes} is outside 0..{ZONE_ID_LIMIT}"


def _resource_name_problems(where: str, name: str) -> Iterator[str]:
    if len(name) > RESOURCE_NAME_LIMIT or not _RESOURCE.fullmatch(name):
        yield (
            f"{where}: {name[:40]!r} is no resource (letters, digits, '-', '_', '.', '/', at most "
            f"{RESOURCE_NAME_LIMIT})"
        )


def _zone_problems(zone: Zone) -> Iterator[str]:
    if not 0 <= zone.id < ZONE_ID_LIMIT:
        yield f"zones: id {zone.id} is outside 0..{ZONE_ID_LIMIT - 1}"
    if len(zone.resources) > RESOURCES:
        yield f"zones[{zone.id}]: {len(zone.resources)} resources; at most {RESOURCES}"
    if len(zone.costs) > ZONE_ID_LIMIT or not all(
        0 <= cost <= AMOUNT_LIMIT for cost in zone.costs.values()
    ):
        yield f"zones[{zone.id}].costs: too many, negative or absurd"
    for name, amounts in zone.resources.items():
        yield from _resource_name_problems(f"zones[{zone.id}]", name)
        if not all(
            0 <= amount <= AMOUNT_LIMIT
            for amount in (amounts.capacity, amounts.allocatable, amounts.available)
        ):
            yield f"zones[{zone.id}].{name}: negative or absurd amount"
    if len(zone.group) > ZONE_ID_LIMIT or not all(
        0 <= member < ZONE_ID_LIMIT for member in zone.group
    ):
        yield f"zones[{zone.id}].group: zones outside 0..{ZONE_ID_LIMIT - 1}"
    for field, amounts_by_name in (
        ("bounds", zone.bounds),
        ("offered", zone.offered),
        ("free", zone.free),
    ):
        if len(amounts_by_name) > RESOURCES or not all(
            0 <= amount <= AMOUNT_LIMIT for amount in amounts_by_name.values()
        ):
            yield f"zones[{zone.id}].{field}: too many, negative or absurd"
        for name in amounts_by_name:
            yield from _resource_name_problems(f"zones[{zone.id}].{field}", name)


def _inventory_problems(report: Report) -> Iterator[str]:
    layout = report.cpus
    columns = (
        report.reserved_cpus,
        *(
            (layout.ids, layout.zones, layout.sockets, layout.cores, layout.caches)
            if layout
            else ()
        ),
    )
    if any(len(text) > IDS_LIMIT for text in columns) or len(report.checkpoints) > len(CHECKPOINTS):
        yield (
            f"cpus, reserved_cpus, checkpoints: more than {IDS_LIMIT} characters or "
            f"{len(CHECKPOINTS)} names"
        )
    groups = report.devices or ()
    if len(groups) > DEVICE_GROUPS:
        yield f"devices: {len(groups)} groups; at most {DEVICE_GROUPS}"
    for group in groups:
        yield from _resource_name_problems("devices", group.resource)
        if (
            len(group.zones) > ZONES
            or len(group.ids) > IDS_LIMIT
            or len(group.unhealthy) > IDS_LIMIT
        ):
            yield (
                f"devices.{group.resource[:40]}: more than {ZONES} zones or {IDS_LIMIT} "
                "characters of ids"
            )


def _dynamic_problems(groups: Sequence[DynamicGroup]) -> Iterator[str]:
    if len(groups) > DEVICE_GROUPS:
        yield f"dynamic: {len(groups)} groups; at most {DEVICE_GROUPS}"
    for group in groups:
        where = f"dynamic[{group.driver[:40]}/{group.pool[:40]}]"
        yield from _resource_name_problems("dynamic", group.driver)
        if len(group.pool) > TEXT_LIMIT or not group.pool.isprintable():
            yield f"{where}: a pool of more than {TEXT_LIMIT} printable characters"
        lists = (group.ids, group.withheld, group.shared)
        if (
            len(group.zones) > ZONES
            or sum(map(len, lists)) > IDS_LIMIT
            or not all(map(_is_list, lists))
        ):
            yield (
                f"{where}: more than {ZONES} zones or {IDS_LIMIT} characters of ids, or ids that "
                "are no list"
            )


def _is_list(text: str) -> bool:
    try:
        parse_ids(text)
    except ValueError:
        return False
    return True


def _placement_problems(
    placements: Sequence[Placement], zones: frozenset[int], hidden: bool = False
) -> Iterator[str]:
    """Check placements. A zone that the report does not list shows that it was read from two
    machines. A `hidden` placement may have no pod's name, and resources of a pod outside its
    containers have no container's name."""
    if len(placements) > CONTAINERS:
        yield f"placements: {len(placements)} containers; at most {CONTAINERS}"
    for placement in placements:
        name = "/".join(
            part[:40] for part in (placement.namespace, placement.pod, placement.container)
        )
        where = f"placements[{name}]"
        names = () if hidden and not placement.pod else (placement.namespace, placement.pod)
        names = (*names, placement.container) if placement.container else names
        if any(len(name) > NAME_LIMIT or not _POD.fullmatch(name) for name in names):
            yield f"{where}: a name that Kubernetes would not take"
        if len(placement.pod_uid) > BOOT_ID_LIMIT or not placement.pod_uid.isprintable():
            yield f"{where}: pod_uid is none"
        if len(placement.held) > HELD:
            yield f"{where}: {len(placement.held)} entries; at most {HELD}"
        for amount in placement.held:
            yield from _amount_problems(where, amount, zones)
        if len(placement.claims) > CLAIMED or not all(map(_is_claim, placement.claims)):
            yield (
                f"{where}: more than {CLAIMED} claimed devices, or names of more than "
                f"{TEXT_LIMIT} printable characters"
            )


def _is_claim(claimed: ClaimedDevice) -> bool:
    names = (claimed.driver, claimed.pool, claimed.device, claimed.share, *claimed.cdi)
    listed = len(claimed.cdi) <= HELD and len(claimed.claim) <= 2 * NAME_LIMIT + 1
    return (
        listed
        and claimed.claim.isprintable()
        and all(len(name) <= TEXT_LIMIT and name.isprintable() for name in names)
    )


def _amount_problems(where: str, amount: ZonedAmount, zones: frozenset[int]) -> Iterator[str]:
    if len(amount.zones) > ZONES or len(set(amount.zones)) != len(amount.zones):
        yield f"{where}.{amount.resource[:40]}: zones that appear twice, or more than {ZONES}"
    unlisted = [zone for zone in amount.zones if zone not in zones]
    if unlisted:
        yield (
            f"{where}.{amount.resource[:40]}: zone {unlisted[0]} is none of the report's zones "
            f"{sorted(zones)}"
        )
    if not 0 <= amount.amount <= AMOUNT_LIMIT or len(amount.ids) > IDS_LIMIT:
        yield f"{where}.{amount.resource[:40]}: negative or absurd amount"
    yield from _resource_name_problems(where, amount.resource)
