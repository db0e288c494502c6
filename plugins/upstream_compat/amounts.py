"""Arithmetic on Kubernetes quantities that keeps the notation as apimachinery does, because status
texts print it.

Source: k8s.io/apimachinery `resource.Quantity` Add, Sub, Cmp, Value.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.domain.quantity import NANO, Quantity
from shared.domain.resources import CPU, EPHEMERAL_STORAGE, MEMORY, is_device, is_hugepages

# Resource name -> quantity. Unlike `Amounts`, a name with a zero quantity differs from an absent
# name.
Quantities = dict[str, Quantity]

ZERO = Quantity(0)


def plus(left: Quantity, right: Quantity) -> Quantity:
    """Return the sum, in the notation of `left`, or of `right` if `left` is zero."""
    return Quantity(left.nano + right.nano, left.format if left.nano else right.format)


def minus(left: Quantity, right: Quantity) -> Quantity:
    """Return the difference, in the notation of `left`, or of `right` if `left` is zero."""
    return Quantity(left.nano - right.nano, left.format if left.nano else right.format)


def from_amounts(amounts: Mapping[str, int]) -> Quantities:
    """Return Topolog's integers (millicpu, bytes, counts) as quantities."""
    return {name: from_amount(name, amount) for name, amount in amounts.items()}


def from_amount(name: str, amount: int) -> Quantity:
    """Return one integer amount as a quantity, bytes in binary notation."""
    if name == CPU:
        return Quantity(amount * (NANO // 1000))
    return Quantity(
        amount * NANO,
        "BinarySI" if name in (MEMORY, EPHEMERAL_STORAGE) or is_hugepages(name) else "DecimalSI",
    )


def is_host_level(name: str) -> bool:
    """Return whether every zone may lack the resource: storage, and everything outside Kubernetes'
    own names.
    """
    return name in (EPHEMERAL_STORAGE, "storage") or is_device(name)
