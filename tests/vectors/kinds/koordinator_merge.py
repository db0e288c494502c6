"""Vectors of Koordinator's merge of hints (topology_merge)."""

from __future__ import annotations

from typing import Any

from shared.kubelet.masks import mask_of
from shared.owned.hints import Hint
from shared.owned.merge import Merged, Zones, merge
from tests.vectors.koordinator import answers, differences_named, mask_json, policy_of

KIND = "topology_merge"

Json = dict[str, Any]


def recognises(doc: Json) -> bool:
    return doc.get("kind") == KIND


deliberate = differences_named


def check(case: Json) -> list[str]:
    if case["expect"].get("panic"):
        return []
    zones = Zones(
        mask_of(case["zones"]),
        dict(zip(case["zones"], case["zone_status"], strict=True)),
        case["exclusive"],
    )
    providers = [
        {entry["resource"]: _hints(entry["hints"]) for entry in provider or ()}
        for provider in case["providers"]
    ]
    got = _json(merge(policy_of(case["policy"]), providers, zones))
    wanted = [{key: answer[key] for key in got} for answer in answers(case)]
    return [] if got in wanted else [f"ours {got}, recorded {wanted}"]


def _hints(docs: list[Json] | None) -> list[Hint] | None:
    if docs is None:
        return None
    return [
        Hint(
            None if doc["mask"] is None else mask_of(doc["mask"]),
            doc["preferred"],
            doc["score"],
            doc.get("unsatisfied", False),
        )
        for doc in docs
    ]


def _json(merged: Merged) -> Json:
    return {
        "mask": mask_json(merged.mask),
        "preferred": merged.preferred,
        "unsatisfied": merged.unsatisfied,
        "score": merged.score,
        "admit": merged.is_admitted,
    }
