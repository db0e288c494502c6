"""The error for an object that cannot be used: which field, its value, and what to write
instead.
"""

from __future__ import annotations


class InvalidObjectError(ValueError):
    """An API object that cannot be read. `field` is a path such as
    `spec.containers[0].resources.requests.cpu`.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field, self.value, self.remedy = field, value, remedy
        super().__init__(f"{field}: {value!r} is not usable; {remedy}")
