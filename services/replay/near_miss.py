"""A node's refusal of a pod, for people: the request, the amounts in each zone, the holders of the
rest, the remedy.

It is built from the structured refusals of a scheduling outcome. A refusal in the form of an older
or newer release is shown as it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.domain.quantity import format_amount
from shared.domain.refusal import HOLDERS_NAMED, Refusal, ZoneState


def near_miss(refusal: dict[str, object], names: Mapping[str, str]) -> list[str]:
    """Return the lines for one refusal. `names` is the key of a pod by uid."""
    try:
        parsed = msgspec.convert(refusal, Refusal)
    except msgspec.ValidationError:
        return [
            "near miss: "
            + ", ".join(
                f"{key} {value}"
                for key, value in refusal.items()
                if value not in ("", None, [], {})
            )
        ]
    lines = [f"near miss {parsed.node}: {_headline(parsed)}"]
    lines += [f"  zone {zone.zone}: {_zone(zone, parsed.resource, names)}" for zone in parsed.zones]
    if parsed.remedy:
        lines.append(f"  would fit: {parsed.remedy}")
    return lines


def _headline(refusal: Refusal) -> str:
    parts = [refusal.phrase or str(refusal.reason)]
    if refusal.subject:
        parts.append(refusal.subject)
    if refusal.container:
        parts.append(f"container {refusal.container}")
    if refusal.resource:
        where = "the node" if refusal.best_zone is None else f"zone {refusal.best_zone}"
        asked, best = (
            format_amount(refusal.resource, refusal.asked),
            format_amount(refusal.resource, max(0, refusal.best)),
        )
        parts.append(f"requests {refusal.resource} {asked}, {where} has {best} guaranteed free")
    if refusal.policy:
        source = f" by {refusal.policy_source}" if refusal.policy_source else ""
        parts.append(f"policy {refusal.policy}/{refusal.scope or 'container'}{source}")
    return ", ".join(parts)


def _zone(zone: ZoneState, resource: str, names: Mapping[str, str]) -> str:
    free, total = (
        format_amount(resource, max(0, zone.free)),
        format_amount(resource, zone.allocatable),
    )
    text = f"{resource} {free} of {total} guaranteed free"
    if zone.possibly_free > zone.free:
        text += f", {format_amount(resource, zone.possibly_free)} free at most"
    if zone.holders:
        shown = [names.get(uid, uid) for uid in zone.holders[:HOLDERS_NAMED]]
        more = len(zone.holders) - len(shown) + zone.more_holders
        text += f"; held by {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")
    return text
