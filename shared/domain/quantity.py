"""Kubernetes quantities, exactly: the whole text grammar, its rounding, and the text that
Kubernetes prints.

Every quantity is a whole number of nano units (apimachinery's `resource.Quantity` rounds finer
values away from zero), so one integer holds any quantity and no float is involved. This module does
not know pods or nodes. Source of the rules: k8s.io/apimachinery `pkg/api/resource`, checked against
its recorded answers.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import msgspec

from shared.domain.resources import CPU, EPHEMERAL_STORAGE, MEMORY, is_hugepages

Format = Literal["DecimalSI", "DecimalExponent", "BinarySI"]

NANO = 10**9
MAX_TEXT_CHARS = 256
MAX_EXPONENT = 64
MAX_INT64 = 2**63 - 1
_FAST_PATH_DIGITS = 18

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_TEXT = {exponent: text for text, exponent in _DECIMAL.items()}
_BINARY_TEXT = ["", *_BINARY]
_SCANNED = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)

SHAPE_ERROR = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
SUFFIX_ERROR = "unable to parse quantity's suffix"
NUMERIC_ERROR = "unable to parse numeric part of quantity"


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity. The message is apimachinery's own if it has one."""


class Quantity(msgspec.Struct, frozen=True, gc=False):
    """An exact amount of `nano` nano units, with the notation it was written in.

    `written` is the source text if Kubernetes prints it back unchanged, else empty.
    """

    nano: int
    format: Format = "DecimalSI"
    written: str = ""

    @property
    def exact(self) -> Fraction:
        """The value as a rational number."""
        return Fraction(self.nano, NANO)

    def value(self) -> int:
        """Return whole units, rounded away from zero (apimachinery `Value`, without its 64-bit
        wrap-around).
        """
        return _away_from_zero(self.nano, NANO)

    def milli_value(self) -> int:
        """Return thousandths, rounded away from zero (apimachinery `MilliValue`, without its 64-bit
        wrap-around).
        """
        return _away_from_zero(self.nano, NANO // 1000)

    def canonical(self) -> str:
        """Return the canonical form: no fraction digits, the largest lossless suffix.

        apimachinery's `CanonicalizeBytes` loses the exponent of decimal amounts that end in 21
        zeros or more; this method keeps it.
        """
        if self.nano == 0:
            return "0"
        whole, rest = divmod(self.nano, NANO)
        if self.format == "BinarySI" and rest == 0 and abs(whole) >= 1024:
            return _binary_text(whole)
        return _decimal_text(self.nano, self.format)

    def text(self) -> str:
        """Return what `Quantity.String()` prints after parsing: the source text if in good form,
        else canonical.
        """
        return self.written or self.canonical()


def parse(text: str | int | float) -> Quantity:
    """Return the quantity in `text` (or a JSON number).

    Raises `QuantityError` for anything else, for texts over 256 characters, and for exponents
    beyond 10^64.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise QuantityError(f"a quantity is a text or a number, not {type(text).__name__}")
    if isinstance(text, int) and abs(text) >= 10**MAX_EXPONENT:
        raise QuantityError(f"a quantity above 10^{MAX_EXPONENT} is absurd")
    return _parse(text if isinstance(text, str) else repr(text))


@lru_cache(maxsize=8192)
def _parse(text: str) -> Quantity:
    if len(text) > MAX_TEXT_CHARS:
        raise QuantityError(
            f"a quantity of {len(text)} characters is too long (limit {MAX_TEXT_CHARS})"
        )
    scanned = _SCANNED.fullmatch(text) if text else None
    if scanned is None:
        raise QuantityError(SHAPE_ERROR)
    sign, digits, fraction, suffix = scanned.groups(default="")
    base, exponent, form = _interpret(suffix)
    if _slow_without_digits(text.removesuffix(suffix), base, exponent):
        raise QuantityError(NUMERIC_ERROR)
    digits, negative = digits or "0", sign == "-"
    shifted = digits + fraction
    nano = _to_nano(int(shifted), len(fraction), base, exponent)
    if form == "BinarySI":
        nano = min(nano, MAX_INT64 * NANO)
        form = "DecimalSI" if 0 < nano < NANO and fraction else form
    keeps = _prints_itself(shifted, len(fraction), exponent, form)
    return Quantity(-nano if negative else nano, form, text if keeps else "")


def _interpret(suffix: str) -> tuple[int, int, Format]:
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix], "DecimalSI"
    if suffix in _BINARY:
        return 2, _BINARY[suffix], "BinarySI"
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise QuantityError(SUFFIX_ERROR)
    exponent = int(match.group(1))
    if exponent > MAX_EXPONENT:
        raise QuantityError(f"a quantity with exponent {exponent} is absurd (limit {MAX_EXPONENT})")
    return 10, max(exponent, -2 * MAX_TEXT_CHARS), "DecimalExponent"


def _slow_without_digits(number: str, base: int, exponent: int) -> bool:
    """Return whether a number without digits is an error. On the 64-bit path it is zero; the suffix
    alone chooses the path then.
    """
    return number.strip("+-.") == "" and (
        exponent >= _BINARY["Pi"] if base == 2 else exponent < _DECIMAL["n"]
    )


def _to_nano(shifted: int, places: int, base: int, exponent: int) -> int:
    """`shifted` x 10^-places x base^exponent in nano units, finer values rounded up."""
    if base == 2:
        return _away_from_zero((shifted << exponent) * NANO, _ten_to(places))
    scale = exponent - places + 9
    return shifted * _ten_to(scale) if scale >= 0 else _away_from_zero(shifted, _ten_to(-scale))


def _ten_to(power: int) -> int:
    return int(10**power)


def _prints_itself(shifted: str, places: int, exponent: int, form: Format) -> bool:
    """Return whether apimachinery keeps the source text: only for numbers on its 64-bit path that
    look canonical enough.
    """
    if form == "BinarySI":
        precision = 14 - len(shifted) - int(exponent * 3 / 10)
        return places == 0 and precision >= 0 and int(shifted) & 7 != 0
    scale = exponent - places
    if len(shifted) > _FAST_PATH_DIGITS or scale < -9:
        return False
    return scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"


def _away_from_zero(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount >= 0 else amount // unit


def _decimal_text(nano: int, form: Format) -> str:
    exponent = -9
    while nano % 1000 == 0:
        nano, exponent = nano // 1000, exponent + 3
    if form == "DecimalExponent" or exponent not in _DECIMAL_TEXT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_TEXT[exponent]}"


def _binary_text(whole: int) -> str:
    step = 0
    while whole % 1024 == 0 and step < len(_BINARY_TEXT) - 1:
        whole, step = whole // 1024, step + 1
    return f"{whole}{_BINARY_TEXT[step]}"


def counts_bytes(resource: str) -> bool:
    """Return whether the unit of the resource is the byte."""
    return resource in (MEMORY, EPHEMERAL_STORAGE) or is_hugepages(resource)


def amount(resource: str, text: str | int | float) -> int:
    """Return `text` in the unit of `resource`: millicpu for cpu, else bytes or counts, rounded up
    as Kubernetes does.

    Surrounding blanks are ignored, as in Kubernetes' JSON. Raises `QuantityError`, also beyond 64
    bits.
    """
    quantity = parse(text.strip() if isinstance(text, str) else text)
    counted = quantity.milli_value() if resource == CPU else quantity.value()
    if abs(counted) > MAX_INT64:
        raise QuantityError(f"{quantity.text()} is beyond 64 bits")
    return counted


def format_amount(resource: str, amount: int) -> str:
    """Return an amount as Kubernetes users write it: cpu `6` or `1500m`, bytes `2Gi`, counts as
    plain digits.
    """
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    return _binary_text(amount) if amount and counts_bytes(resource) else str(amount)
