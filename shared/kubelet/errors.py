"""Why a resource manager refuses a container, in the kubelet's own words. Must not know which
manager speaks.
"""

from __future__ import annotations

import msgspec

UNEXPECTED = "UnexpectedAdmissionError"


class AllocationError(msgspec.Struct, frozen=True):
    """A refusal as a value: `reason` and `message` as they appear in the status of a rejected pod
    (kubelet 1.36).
    """

    reason: str
    message: str


def unexpected(inner: str) -> AllocationError:
    """The refusal for any allocation error without a reason of its own; `inner` is the manager's
    error text.
    """
    return AllocationError(UNEXPECTED, f"Allocate failed due to {inner}, which is unexpected")
