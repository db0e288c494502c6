"""Whether a pod waits for a zone or for a node, and how that is written."""

from __future__ import annotations

import pytest

from shared.domain.refusal import Reason, zone_text, zone_wait


@pytest.mark.parametrize(
    ("reason", "waits"),
    [
        (Reason.NO_SINGLE_ZONE, True),
        (Reason.NO_ZONE_SET, True),
        (Reason.NEVER_ALIGNED, True),
        (Reason.NODE_RESOURCE, False),
        (Reason.TAINT, False),
        (Reason.KEY_NOT_KEPT, False),
        ("of a newer release", False),
    ],
)
def test_the_nearest_node_decides(reason: str, waits: bool) -> None:
    detail = ({"reason": str(reason), "resource": "cpu"},)
    assert zone_wait(detail) == ("cpu" if waits else "")
    assert bool(zone_text(detail)) is waits


def test_without_detail_nothing_is_said() -> None:
    assert zone_wait(()) == zone_text(()) == ""
    assert zone_wait(({"reason": Reason.ONE_ZONE.value},)) == "zone"


def test_the_text_has_what_every_zone_of_the_nearest_node_has() -> None:
    refusal = {
        "node": "n1",
        "reason": Reason.NO_SINGLE_ZONE.value,
        "resource": "cpu",
        "asked": 8000,
        "zones": [
            {"zone": 0, "free": 6000, "possibly_free": 6000, "allocatable": 16000},
            {"zone": 1, "free": 500, "possibly_free": 500, "allocatable": 16000},
            {"zone": 2, "free": -3000, "possibly_free": 6000, "allocatable": 15000},
        ],
        "remedy": "necessary: 2 more free cpu in zone 0",
    }
    assert zone_text((refusal,)) == (
        "The pod waits for a zone, not for a node: it requests 8 cpu together, and on n1, the "
        "nearest node, zone 0 has 6 free of 16, zone 1 has 500m free of 16, zone 2 has 0 to 6 free "
        "of 15. necessary: 2 more free cpu in zone 0"
    )
