"""Requests that a person types, and the bare pods that ask for them. Pure."""

from __future__ import annotations

from services.replay.filters import FilterError
from shared.domain.pod import Container, Pod
from shared.domain.quantity import amount
from shared.domain.resources import Amounts

SHAPE_EXAMPLE = "cpu=4,memory=8Gi"


def shape_of(text: str) -> Amounts:
    """Read `cpu=4,memory=8Gi`. Raises FilterError."""
    shape: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, equals, quantity = (piece.strip() for piece in part.partition("="))
        try:
            shape[name] = amount(name, quantity)
        except ValueError as error:
            problem = f"shape: {part!r} is no RESOURCE=QUANTITY ({error})"
            raise FilterError(problem, SHAPE_EXAMPLE) from error
        if not name or not equals or shape[name] <= 0:
            raise FilterError(f"shape: {part!r} is no RESOURCE=QUANTITY above 0", SHAPE_EXAMPLE)
    return shape


def pod_of(shape: Amounts, priority: int = 0) -> Pod:
    """Return a Guaranteed pod of one container that requests the shape."""
    container = Container("app", requests=shape, limits=shape)
    return Pod("shape", "", "shape", "Guaranteed", (container,), priority=priority)
