"""Durations, by cases of Go's own time_test.go (RTE ef567ef3 and NFD 76e6cc8 read their flags with
time.ParseDuration).
"""

from __future__ import annotations

import pytest

from services.exporter.durations import duration_s
from shared.domain.durations import nanoseconds

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0),
        ("5s", 5 * SECOND),
        ("1478s", 1478 * SECOND),
        ("+5s", 5 * SECOND),
        ("5.6s", 5_600_000_000),
        ("5.s", 5 * SECOND),
        (".5s", SECOND // 2),
        ("1.004s", 1_004_000_000),
        ("100.00100s", 100_001_000_000),
        ("10ns", 10),
        ("11us", 11_000),
        ("12µs", 12_000),
        ("12μs", 12_000),
        ("13ms", 13_000_000),
        ("15m", 900 * SECOND),
        ("16h", 16 * 3600 * SECOND),
        ("3h30m", 12_600 * SECOND),
        ("10.5s4m", 250_500_000_000),
        ("2m3.4s", 123_400_000_000),
        ("1h2m3s4ms5us6ns", 3_723_004_005_006),
        ("39h9m14.425s", 140_954_425_000_000),
        ("52763797000ns", 52_763_797_000),
        ("0.3333333333333333333h", 1_199_999_999_999),
        ("9223372036854775807ns", 2**63 - 1),
        ("1.5m", 90 * SECOND),
    ],
)
def test_a_duration_lasts_as_long_as_in_go(text: str, duration_ns: int) -> None:
    assert nanoseconds(text) == duration_ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "-",
        "s",
        ".",
        "-.",
        ".s",
        "+.s",
        "1d",
        "9223372036854775810ns",
        "9223372036854776us",
        "3000000h",
        "-5s",
        "1s ",
        "１s",
        "1ss",
    ],
)
def test_an_invalid_or_negative_duration_is_none(text: str) -> None:
    assert nanoseconds(text) is None


def test_an_interval_of_zero_is_rejected_with_the_reason() -> None:
    assert duration_s("1.5m") == "90"
    for text in ("0", "0s"):
        with pytest.raises(ValueError, match="a node without reports expires"):
            duration_s(text)
