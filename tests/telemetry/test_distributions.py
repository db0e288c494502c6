"""A distribution shows Prometheus what counting each value by hand gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from shared.telemetry.declare import SECONDS, Metric
from shared.telemetry.distributions import Distributions

LATENCY = Metric("test_latency", "histogram", "s", "How long.", ("who",), SECONDS)


def shown(distributions: Distributions) -> dict[tuple[str, str, str], float]:
    """(sample, who, le) -> value, as a scrape reads it."""
    registry = CollectorRegistry()
    registry.register(distributions)
    text = generate_latest(registry).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(each.name.rpartition("_")[2], each.labels["who"], each.labels.get("le", "")): each.value for each in samples}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 100) | st.sampled_from(SECONDS))))
def test_buckets_hold_every_value_up_to_their_bound(values: list[tuple[str, float]]) -> None:
    distributions = Distributions()
    for who, value in values:
        distributions.of(LATENCY).record((who,), value)
    expected: dict[tuple[str, str, str], float] = {}
    for who in sorted({who for who, _ in values}):
        own = [value for each, value in values if each == who]
        for bound in SECONDS:
            expected["bucket", who, str(bound)] = sum(value <= bound for value in own)
        expected["bucket", who, "+Inf"] = expected["count", who, ""] = len(own)
        expected["sum", who, ""] = sum(own)
    assert shown(distributions) == expected
