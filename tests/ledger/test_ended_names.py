"""The listing of an ended pod's name is complete only if a report confirmed exactly this pod."""

from __future__ import annotations

import pytest

from shared.ledger.charging import ended_of
from shared.ledger.state import Alias, Charge


@pytest.mark.parametrize(
    ("charge", "is_complete"),
    [
        (Charge("u", "ns/p", 1, confirmed=True), True),
        (Charge("u", "ns/p", 1), False),
        (Charge("u", "ns/p", 1, confirmed=True, alias=Alias()), False),
    ],
)
def test_a_listing_of_a_namesake_is_not_complete(charge: Charge, is_complete: bool) -> None:
    """The report may list the pod that had the name before."""
    assert ended_of(charge).complete is is_complete
