"""Why a resource manager refuses a container, in the kubelet's words. This module does not know the
managers.
"""

from __future__ import annotations

import msgspec

UNEXPECTED = "UnexpectedAdmissionError"


class AllocationError(msgspec.Struct, frozen=True):
    """A refusal as a value: `reason` and `message` as in the status of a rejected pod (kubelet
    1.36).
    """

    reason: str
    message: str


def unexpected(inner: str) -> AllocationError:
    """Return the refusal for an allocation error without a reason of its own. `inner` is the
    manager's error text.
    """
    return AllocationError(UNEXPECTED, f"Allocate failed due to {inner}, which is unexpected")
