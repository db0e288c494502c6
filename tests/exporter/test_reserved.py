"""What pods may have of amounts that no manager pins."""

from __future__ import annotations

from services.exporter.reserved import Reserved, reserved, with_offered
from shared.domain.report import Zone

MIB = 2**20


def offered(reservation: Reserved) -> list[dict[str, int]]:
    bounds = {"cpu": 4_000, "memory": 1_000 * MIB, "hugepages-2Mi": 10 * MIB}
    zones = (Zone(0, {}, {}, bounds), Zone(1, {}, {}, bounds))
    zone_of_cpu = dict(enumerate((0, 0, 0, 0, 1, 1, 1, 1)))
    return [zone.offered for zone in with_offered(zones, zone_of_cpu, reservation)]


def test_reserved_cpus_by_id_are_taken_from_their_zone_and_replace_amounts() -> None:
    reservation = reserved({"reservedSystemCPUs": "0,5-6", "kubeReserved": {"cpu": "3"}})
    assert reservation is not None
    assert [zone["cpu"] for zone in offered(reservation)] == [3_000, 2_000]


def test_amounts_and_the_eviction_threshold_are_shared_by_the_zones() -> None:
    reservation = reserved({"kubeReserved": {"cpu": "1", "memory": "100Mi"}})
    assert reservation is not None
    assert [zone["cpu"] for zone in offered(reservation)] == [3_500, 3_500]
    assert [zone["memory"] for zone in offered(reservation)] == [900 * MIB, 900 * MIB]
    share = reserved({"evictionHard": {"memory.available": "10%"}})
    assert share is not None
    assert [zone["memory"] for zone in offered(share)] == [900 * MIB, 900 * MIB]


def test_a_reservation_that_cannot_be_read_is_unknown() -> None:
    assert reserved({"kubeReserved": {"cpu": "many"}}) is None
    assert reserved({"reservedSystemCPUs": "x"}) is None
    for text in ("nan%", "inf%", "-1%", "101%"):
        assert reserved({"evictionHard": {"memory.available": text}}) is None
