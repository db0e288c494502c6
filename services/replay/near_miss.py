"""A node's refusal of a pod, in words for people: what was asked, what each zone had, who holds the
rest, what would help.

From the structured refusals that a verdict keeps; one of another shape (an older or newer
release's) is shown as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.domain.quantity import format_amount
from shared.domain.refusal import Refusal, ZoneState

HOLDERS_SHOWN = 5


def near_miss(refusal: dict[str, object], names: Mapping[str, str]) -> list[str]:
    """The lines for one refusal; `names` is the key of a pod by uid."""
    try:
        found = msgspec.convert(refusal, Refusal)
    except msgspec.ValidationError:
        return [
            "near miss: "
            + ", ".join(
                f"{key} {value}"
                for key, value in refusal.items()
                if value not in ("", None, [], {})
            )
        ]
    lines = [f"near miss {found.node}: {_headline(found)}"]
    lines += [f"  zone {zone.zone}: {_zone(zone, found.resource, names)}" for zone in found.zones]
    if found.remedy:
        lines.append(f"  would fit: {found.remedy}")
    return lines


def _headline(found: Refusal) -> str:
    parts = [str(found.reason)]
    if found.subject:
        parts.append(found.subject)
    if found.container:
        parts.append(f"container {found.container}")
    if found.resource:
        where = "the node" if found.best_zone is None else f"zone {found.best_zone}"
        asked, best = (
            format_amount(found.resource, found.asked),
            format_amount(found.resource, max(0, found.best)),
        )
        parts.append(f"asks for {found.resource} {asked}, {where} surely has {best}")
    if found.policy:
        source = f" by {found.policy_source}" if found.policy_source else ""
        parts.append(f"policy {found.policy}/{found.scope or 'container'}{source}")
    return ", ".join(parts)


def _zone(zone: ZoneState, resource: str, names: Mapping[str, str]) -> str:
    free, total = (
        format_amount(resource, max(0, zone.free)),
        format_amount(resource, zone.allocatable),
    )
    text = f"{resource} {free} of {total} surely free"
    if zone.possibly_free > zone.free:
        text += f", {format_amount(resource, zone.possibly_free)} at best"
    if zone.holders:
        shown = [names.get(uid, uid) for uid in zone.holders[:HOLDERS_SHOWN]]
        more = len(zone.holders) - len(shown)
        text += f"; held by {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")
    return text
