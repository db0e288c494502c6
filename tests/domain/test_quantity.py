"""Quantities are exact, round as Kubernetes does, and print Kubernetes' canonical text."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.quantity import Quantity, QuantityError, amount, format_amount, parse

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "e3": Fraction(10**3),
    "E-2": Fraction(1, 100),
    "e+6": Fraction(10**6),
    "e0": Fraction(1),
}

texts = st.builds(
    lambda sign, whole, fraction, suffix: (sign, f"{whole}{fraction}", suffix),
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**7).map(str),
    st.one_of(
        st.just(""), st.just("."), st.integers(0, 10**6).map(lambda digits: f".{digits:06d}")
    ),
    st.sampled_from(sorted(SUFFIXES)),
).filter(lambda parts: not _is_signed_bare_zero(*parts))


def _is_signed_bare_zero(sign: str, number: str, suffix: str) -> bool:
    """`+0.Ki`: apimachinery strips leading zeros and its decimal reader then refuses a sign and a
    dot alone.
    """
    return bool(sign) and number == "0." and suffix.endswith("i")


def _plain(sign: str, number: str, suffix: str) -> Fraction:
    """Read a quantity plainly: number times unit, rounded up to nano units, binary ones capped at
    2^63-1.
    """
    exact = Fraction(number.rstrip(".") or "0") * SUFFIXES[suffix]
    nano = -(-exact * 10**9 // 1)
    if suffix.endswith("i"):
        nano = min(nano, (2**63 - 1) * 10**9)
    return Fraction(-nano if sign == "-" else nano, 10**9)


@given(texts)
def test_value_equals_the_plain_reading(parts: tuple[str, str, str]) -> None:
    quantity, exact = parse("".join(parts)), _plain(*parts)
    assert quantity.exact == exact
    for ours, unit in ((quantity.value(), 1), (quantity.milli_value(), 1000)):
        assert abs(ours) >= abs(exact * unit) > abs(ours) - 1 or ours == exact == 0
        assert ours * exact >= 0


@given(texts)
def test_canonical_text_is_stable_and_says_the_same(parts: tuple[str, str, str]) -> None:
    quantity = parse("".join(parts))
    again = parse(quantity.canonical())
    assert again.exact == quantity.exact
    assert again.canonical() == quantity.canonical()
    assert parse(quantity.text()).exact == quantity.exact


@given(
    st.one_of(
        st.text(max_size=40),
        st.text("0123456789.+-eEinumkKMGTP", max_size=12),
        st.binary(),
        st.none(),
    )
)
def test_any_input_is_a_quantity_or_a_quantity_error(junk: object) -> None:
    with contextlib.suppress(QuantityError):
        assert isinstance(parse(junk), Quantity)  # type: ignore[arg-type]


def test_an_integer_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(QuantityError, match="absurd"):
        parse(10**5000)


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1Ki ", "0x10", "1_000", "Infinity", "NaN", "1.2.3", "1KI", "٣", "5e-1Ki"],
)
def test_texts_outside_the_grammar_get_the_regular_expression(text: str) -> None:
    with pytest.raises(QuantityError, match="must match the regular expression"):
        parse(text)


@pytest.mark.parametrize("text", ["1K", "1mi", "1e", "1e+", "--1", "1ki", "2Zi"])
def test_unknown_suffixes_are_named(text: str) -> None:
    with pytest.raises(QuantityError, match=r"suffix|regular expression"):
        parse(text)


@pytest.mark.parametrize("text", ["Ei", "-Pi", "+.Ei", "e-12", ".e-10"])
def test_no_digit_is_no_number_where_the_suffix_needs_big_decimals(text: str) -> None:
    with pytest.raises(QuantityError, match="numeric part"):
        parse(text)


@pytest.mark.parametrize("text", [".Ti", "Ki", "0.Ei", "-0.Pi", "e-9", ".", "E"])
def test_no_digit_is_zero_elsewhere(text: str) -> None:
    assert parse(text).nano == 0


@pytest.mark.parametrize("text", ["1e65", "1e99999999999999999999", "9" * 300, 10**100, True])
def test_absurd_quantities_are_refused_at_once(text: str | int) -> None:
    with pytest.raises(QuantityError):
        parse(text)


def test_json_numbers_are_quantities() -> None:
    assert parse(3).value() == 3
    assert parse(1.5).milli_value() == 1500
    with pytest.raises(QuantityError):
        parse(float("nan"))
    with pytest.raises(QuantityError):
        parse(float("inf"))


def test_finer_than_nano_rounds_away_from_zero() -> None:
    assert parse("0.1n").canonical() == "1n"
    assert parse("-1e-300").exact == Fraction(-1, 10**9)


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "1", 1000),
        ("cpu", "100m", 100),
        ("cpu", "1u", 1),
        ("memory", "1.5Gi", 1610612736),
        ("memory", "100m", 1),
        ("hugepages-2Mi", " 4Mi ", 4194304),
        ("vendor.example/gpu", 2, 2),
    ],
)
def test_amounts_are_in_the_unit_of_the_resource(
    resource: str, text: str | int, expected: int
) -> None:
    assert amount(resource, text) == expected


def test_amounts_beyond_64_bits_are_refused() -> None:
    with pytest.raises(QuantityError, match="64 bits"):
        amount("cpu", "1e16")
    assert amount("memory", "1e16") == 10**16


@pytest.mark.parametrize(
    ("resource", "counted", "text"),
    [
        ("cpu", 6000, "6"),
        ("cpu", 1500, "1500m"),
        ("cpu", 0, "0"),
        ("memory", 2 * 2**30, "2Gi"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("memory", 2**70, "1024Ei"),
        ("ephemeral-storage", 1024, "1Ki"),
        ("vendor.example/nic", 2048, "2048"),
    ],
)
def test_amounts_print_as_people_write_them(resource: str, counted: int, text: str) -> None:
    assert format_amount(resource, counted) == text


@given(
    st.sampled_from(["cpu", "memory", "hugepages-1Gi", "vendor.example/gpu"]), st.integers(0, 2**56)
)
def test_printed_amounts_read_back(resource: str, counted: int) -> None:
    assert amount(resource, format_amount(resource, counted)) == counted
