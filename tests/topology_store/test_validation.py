"""Messages that are no reports, or not ones to believe: refused with the node, the field and what
to do.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.topology_store.validation import RefusedReport, read
from shared.bus import subjects
from shared.domain.cpus import CpuLayout
from shared.domain.report import DeviceGroup, Placement, Report, Zone, ZonedAmount, ZoneResource
from tests.ledger.given import held
from tests.topology_store.words import report


def read_as(node: str, data: bytes) -> Report | RefusedReport:
    return read(subjects.report(node), data)


def problem(outcome: Report | RefusedReport) -> str:
    assert isinstance(outcome, RefusedReport), outcome
    return outcome.problem


def test_a_good_report_is_read_under_a_name_with_dots() -> None:
    node_report = report(node="n1.example.com")
    assert read_as("n1.example.com", msgspec.json.encode(node_report)) == node_report


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[1,2]",
        b'{"node":"n1"}',
        b"\xff\xfe",
        b'{"node":"n1","boot_id":7,"boot_time_ms":1}',
    ],
)
def test_what_is_no_report_is_refused_with_its_node_and_a_remedy(data: bytes) -> None:
    result = read_as("n1", data)
    assert isinstance(result, RefusedReport)
    assert result.node == "n1"
    assert "upgrade the exporter" in result.problem


@given(st.binary(max_size=200))
def test_no_bytes_whatsoever_raise(data: bytes) -> None:
    read_as("n1", data)


GOOD = msgspec.json.encode(report())


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 8), st.binary(max_size=6))
def test_no_damage_to_a_good_report_raises(at: int, lost: int, put: bytes) -> None:
    read_as("n1", GOOD[:at] + put + GOOD[at + lost :])


@pytest.mark.parametrize(
    "data",
    [
        b'{"node": "\xff"}',
        b'{"node": "\xed\xa0\x80"}',
        GOOD.replace(b'"n1"', b'"n\xff"', 1),
        GOOD[:-1] + b',"unheard":' + b"[" * 100_000,
        GOOD[:-1] + b',"unheard":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda data: f"{len(data)} bytes",
)
def test_text_that_is_no_text_and_endless_nesting_are_refused(data: bytes) -> None:
    assert "not a report" in problem(read_as("n1", data))


def test_an_exporter_speaks_only_for_its_own_node() -> None:
    assert "only as its own node" in problem(read_as("n2", msgspec.json.encode(report(node="n1"))))


@pytest.mark.parametrize("node", ["", "a\x00b", "x" * 254, "é", "two\nlines", "/../pods", ".."])
def test_a_node_is_called_what_the_log_can_write(node: str) -> None:
    assert "is no name of a node" in problem(read_as(node, msgspec.json.encode(report(node=node))))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"boot": ""}, "boot_id: empty"),
        ({"boot": "b" * 129}, "boot_id: 'bbb"),
        ({"boot": "b\x00"}, "boot_id: 'b\\x00' is none"),
        ({"policy": "strict"}, "policy: 'strict'"),
        ({"scope": "node"}, "scope: 'node'"),
        ({"zones": (Zone(0), Zone(0))}, "an id appears twice"),
        ({"zones": (Zone(-1),)}, "id -1 is outside"),
        ({"zones": (Zone(1024),)}, "id 1024 is outside"),
        (
            {"zones": (Zone(0, {"cpu": ZoneResource(8, 8, -1)}),)},
            "zones[0].cpu: negative or absurd",
        ),
        (
            {"zones": (Zone(0, {"cpu": ZoneResource(2**63 - 1, 8, 8)}),)},
            "zones[0].cpu: negative or absurd",
        ),
        ({"at": -1}, "boot_time_ms: -1 is negative"),
        ({"zones": tuple(Zone(id) for id in range(65))}, "zones: 65 of them; at most 64"),
        (
            {"zones": (Zone(0, {f"r{n}": ZoneResource(1, 1, 1) for n in range(65)}),)},
            "zones[0]: 65 resources; at most 64",
        ),
        (
            {"zones": (Zone(0, {"gpu\x00": ZoneResource(1, 1, 1)}),)},
            "zones[0]: 'gpu\\x00' is no resource",
        ),
        ({"zones": (Zone(0, {"r" * 318: ZoneResource(1, 1, 1)}),)}, "is no resource"),
        (
            {"placements": (held("p", 7, 1),)},
            "placements[ns/p/c].cpu: zone 7 is none of the report's zones [0, 1]",
        ),
        (
            {"placements": tuple(held(f"p{n}", 0, 1) for n in range(4097))},
            "placements: 4097 containers; at most 4096",
        ),
        (
            {"placements": (Placement("ns", "a/b", "c"),)},
            "placements[ns/a/b/c]: a name that Kubernetes would not take",
        ),
        (
            {"placements": (Placement("ns", "p", "c", (ZonedAmount("cpu", (0,), -1),)),)},
            "cpu: negative or absurd",
        ),
        (
            {"placements": (Placement("ns", "p", "c", (ZonedAmount("cpu", (0, 0), 1),)),)},
            "zones that appear twice",
        ),
        ({"options": {f"o{n}": "" for n in range(33)}}, "more than 32 options"),
        ({"fingerprint": "f" * 257}, "a text of more than 256"),
        ({"tracked": ("",)}, "tracked: '' is no resource"),
        ({"zones": (Zone(0, bounds={"memory": -1}),)}, "zones[0].bounds: too many, negative"),
        ({"zones": (Zone(0, free={"memory": 2**60}),)}, "zones[0].free: too many, negative"),
        (
            {"cpus": CpuLayout("0-1", "x" * (64 << 10 | 1))},
            "cpus, reserved_cpus, checkpoints: more than",
        ),
        ({"checkpoints": ("cpu",) * 4}, "cpus, reserved_cpus, checkpoints: more than"),
        ({"devices": (DeviceGroup("g\n"),)}, "devices: 'g\\n' is no resource"),
        ({"devices": (DeviceGroup("g"),) * 1025}, "devices: 1025 groups; at most 1024"),
        (
            {"hidden": (Placement("", "", "c", (ZonedAmount("cpu", (9,), 1),)),)},
            "zone 9 is none of",
        ),
        ({"hidden": (Placement("a/b", "p", "c"),)}, "a name that Kubernetes would not take"),
    ],
)
def test_a_field_that_cannot_be_believed_is_named(fields: dict[str, object], says: str) -> None:
    assert says in problem(read_as("n1", msgspec.json.encode(report(**fields))))  # type: ignore[arg-type]


def test_a_report_is_bounded_in_size_before_it_is_read() -> None:
    assert "at most 524288 are read" in problem(
        read_as("n1", GOOD[:-1] + b" " * (512 << 10) + b"}")
    )


def test_hidden_placements_may_have_no_pod_and_a_pods_own_no_container() -> None:
    node_report = report(
        hidden=(Placement("", "", "c", (), "uid"),), placements=(Placement("ns", "p", "", ()),)
    )
    assert read_as("n1", msgspec.json.encode(node_report)) == node_report
