"""Quantity vectors: texts, and what Kubernetes' own parser makes of them.

Beyond 64 bits the original's `value` and `milli_value` wrap around; there ours only has to stay
exact.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from shared.domain.quantity import MAX_INT64, Quantity, QuantityError, parse
from tests.vectors.registry import has_keys
from tests.vectors.shapes import differ

KIND = "quantities"


def recognises(doc: dict[str, Any]) -> bool:
    return has_keys(doc, "text", "expect")


def check(case: dict[str, Any]) -> list[str]:
    expect = case["expect"]
    try:
        quantity = parse(case["text"])
    except QuantityError as error:
        return differ("error", str(error), expect.get("error"))
    if "error" in expect:
        return differ("error", None, expect["error"])
    differences = differ("exact", quantity.exact, Fraction(Decimal(expect["exact"])))
    differences += differ("sign", (quantity.nano > 0) - (quantity.nano < 0), expect["sign"])
    differences += differ("text", quantity.text(), expect["canonical"])
    differences += differ("canonical", quantity.canonical(), expect["recomputed"])
    return differences + _integers(quantity, expect)


def _integers(quantity: Quantity, expect: dict[str, Any]) -> list[str]:
    differences: list[str] = []
    for name, ours in (("value", quantity.value()), ("milli_value", quantity.milli_value())):
        exact = quantity.exact * (1000 if name == "milli_value" else 1)
        differences += differ(
            f"{name} covers the exact value", 0 <= abs(ours) - abs(exact) < 1, True
        )
        if abs(ours) <= MAX_INT64:
            differences += differ(name, ours, expect[name])
    return differences
