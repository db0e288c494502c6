"""Messages that are no reports, or not ones to believe: refused with the node, the field and what to do."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.topology_store.validation import RefusedReport, read
from shared.bus import subjects
from shared.domain.report import Report, Zone, ZoneResource
from tests.topology_store.words import report


def read_as(node: str, data: bytes) -> Report | RefusedReport:
    return read(subjects.report(node), data)


def problem(found: Report | RefusedReport) -> str:
    assert isinstance(found, RefusedReport), found
    return found.problem


def test_a_good_report_is_read_under_a_name_with_dots() -> None:
    made = report(node="n1.example.com")
    assert read_as("n1.example.com", msgspec.json.encode(made)) == made


@pytest.mark.parametrize(
    "data", [b"", b"{", b"null", b"[1,2]", b'{"node":"n1"}', b"\xff\xfe", b'{"node":"n1","boot_id":7,"boot_time_ms":1}']
)
def test_what_is_no_report_is_refused_with_its_node_and_a_remedy(data: bytes) -> None:
    found = read_as("n1", data)
    assert isinstance(found, RefusedReport)
    assert found.node == "n1"
    assert "upgrade the exporter" in found.problem


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
        ({"zones": (Zone(0), Zone(0))}, "an id stands twice"),
        ({"zones": (Zone(-1),)}, "id -1 is outside"),
        ({"zones": (Zone(1024),)}, "id 1024 is outside"),
        ({"zones": (Zone(0, {"cpu": ZoneResource(8, 8, -1)}),)}, "zones[0].cpu: negative or absurd"),
        ({"zones": (Zone(0, {"cpu": ZoneResource(2**63 - 1, 8, 8)}),)}, "zones[0].cpu: negative or absurd"),
    ],
)
def test_a_field_that_cannot_be_believed_is_named(fields: dict[str, object], says: str) -> None:
    assert says in problem(read_as("n1", msgspec.json.encode(report(**fields))))  # type: ignore[arg-type]
