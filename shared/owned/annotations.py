"""Koordinator's annotations of a placed pod: `resource-status` and `resource-spec`, byte for byte
as koord-scheduler writes them, so that koordlet enforces them, and reading them back.

Source: Koordinator a7a1b76b, plugins/nodenumaresource (preBindObject, appendResourceSpecIfMissed)
and apis/extension/numa_aware.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.domain.quantity import Format, Quantity, QuantityError, amount, counts_bytes
from shared.domain.resources import CPU
from shared.kubelet.cpuset import format_cpus, parse_cpus
from shared.owned.request import (
    RESOURCE_SPEC,
    PodSpecError,
    ResourceSpec,
    exclusive_policy,
    resource_spec,
)
from shared.owned.values import Allocation, Holding, ZoneAmounts

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
_MILLI, _WHOLE = 10**6, 10**9

# Notation by resource, and by zone and resource.
Formats = Mapping[str, Format]
ZoneFormats = Mapping[tuple[int, str], Format]


class _Zone(msgspec.Struct):
    node: int
    resources: dict[str, Any] = {}


class _Status(msgspec.Struct, omit_defaults=True):
    cpuset: str = ""
    zones: list[_Zone] = msgspec.field(default_factory=list, name="numaNodeResources")


def annotations_of(
    allocation: Allocation,
    annotations: Mapping[str, str],
    formats: Formats | None = None,
    zone_formats: ZoneFormats | None = None,
) -> dict[str, str]:
    """Return the annotations to write on a pod that has `annotations`; empty if it has no CPU set
    and no policy is in force for it. Raises PodSpecError for a broken `resource-spec`.

    Amounts are written in the notation of the request (`formats`), or of the zone if the zone gave
    all that it had free (`zone_formats`). The default is binary for bytes and decimal for others.
    """
    written = {}
    if allocation.bind:
        spec = resource_spec(annotations)
        completed = _completed(spec, allocation)
        if completed != spec:
            written[RESOURCE_SPEC] = msgspec.json.encode(completed).decode()
    if allocation.is_recorded:
        zones = () if allocation.mask is None else allocation.holding.zones
        written[RESOURCE_STATUS] = _status_text(
            allocation.holding.cpus, zones, formats or {}, zone_formats or {}
        )
    return written


def _completed(spec: ResourceSpec, allocation: Allocation) -> ResourceSpec:
    """Return the spec with the bind policy that was applied where it states none."""
    bind, required, preferred = allocation.bind, spec.required, spec.preferred
    if allocation.bind_is_required and required in ("", "Default"):
        required = bind
    if preferred == "Default" or not (required or preferred):
        preferred = bind
    return msgspec.structs.replace(spec, required=required, preferred=preferred)


def _status_text(
    cpus: int, zones: tuple[ZoneAmounts, ...], formats: Formats, zone_formats: ZoneFormats
) -> str:
    status = _Status(
        format_cpus(cpus),
        [
            _Zone(
                record.zone,
                {
                    name: _quantity_text(
                        name, number, zone_formats.get((record.zone, name), formats.get(name))
                    )
                    for name, number in sorted(record.amounts.items())
                },
            )
            for record in zones
        ],
    )
    return msgspec.json.encode(status).decode()


def _quantity_text(resource: str, number: int, notation: Format | None) -> str:
    default: Format = "BinarySI" if counts_bytes(resource) else "DecimalSI"
    scale = _MILLI if resource == CPU else _WHOLE
    return Quantity(number * scale, notation or default).canonical()


def holding_of(annotations: Mapping[str, str]) -> Holding | None:
    """Return what a pod holds by its annotations, None without `resource-status`. Raises
    PodSpecError if it cannot be read.
    """
    text = annotations.get(RESOURCE_STATUS, "")
    if not text:
        return None
    try:
        status = msgspec.json.decode(text, type=_Status)
        zones = {
            record.node: {name: amount(name, number) for name, number in record.resources.items()}
            for record in status.zones
        }
        cpus = parse_cpus(status.cpuset)
    except (msgspec.MsgspecError, QuantityError, ValueError) as error:
        raise PodSpecError(f"{RESOURCE_STATUS}: {error}") from error
    exclusive = exclusive_policy(resource_spec(annotations)) if cpus else ""
    listed = tuple(ZoneAmounts(zone, zones[zone]) for zone in sorted(zones))
    return Holding(cpus, exclusive, listed)
