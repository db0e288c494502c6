"""A booking: room on a node that is kept for pods that come later, its owners.

Koordinator calls this a Reservation. Here a reservation is what one pod has between its decision
and its binding.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.domain.effective import effective_request
from shared.domain.pod import Container, Pod
from shared.domain.requirements import Requirement, holds
from shared.domain.resources import Amounts

AllocatePolicy = Literal["Aligned", "Restricted"]
# Namespace of the pods that stand for bookings: Kubernetes takes no such name.
NAMESPACE = "@booking"


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pods that may use a booking: in `namespace`, called `name`, with this `uid`, all these
    `labels` and label `requirements`, and this `controller` (apiVersion, kind, name and uid). An
    empty field matches every pod.
    """

    namespace: str = ""
    name: str = ""
    labels: dict[str, str] = {}
    uid: str = ""
    requirements: tuple[Requirement, ...] = ()
    controller: tuple[str, ...] = ()

    def matches(self, pod: Pod) -> bool:
        """Return whether the pod is one of these."""
        identity = (self.namespace, pod.namespace), (self.name, pod.name), (self.uid, pod.uid)
        if not all(wanted in ("", has) for wanted, has in identity):
            return False
        if not (self.labels.items() <= pod.labels.items() and self._is_controlled(pod)):
            return False
        return all(holds(requirement, pod.labels) for requirement in self.requirements)

    @property
    def key(self) -> tuple[str, ...]:
        """Return what every matching pod has among its `keys_of`."""
        if self.labels:
            return ("label", *min(self.labels.items()))
        parts = ("uid", self.uid), ("name", self.name), ("namespace", self.namespace)
        return next((part for part in parts if part[1]), ())

    def _is_controlled(self, pod: Pod) -> bool:
        if not self.controller:
            return True
        parts = pod.controller.split(" ")
        return len(parts) == len(self.controller) and all(
            wanted in ("", has) for wanted, has in zip(self.controller, parts, strict=True)
        )


class Terms(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a booking is for. Any of `owners` may use it.

    A pod that needs more than the booking still has takes the rest from the node under `Aligned`,
    and does not use the booking under `Restricted`. `once`: it ends with its first pod,
    whatever that leaves. `expires_us` is when it ends, in microseconds since the epoch, 0 for
    never.
    """

    owners: tuple[Owner, ...] = ()
    policy: AllocatePolicy = "Aligned"
    once: bool = False
    expires_us: int = 0

    def is_for(self, pod: Pod) -> bool:
        """Return whether the pod may use the booking; no booking uses another."""
        return pod.namespace != NAMESPACE and any(owner.matches(pod) for owner in self.owners)


def keys_of(pod: Pod) -> list[tuple[str, ...]]:
    """Return the keys of owners that may match the pod."""
    labels = [("label", *label) for label in pod.labels.items()]
    return [(), ("uid", pod.uid), ("name", pod.name), ("namespace", pod.namespace), *labels]


def pod_for(uid: str, name: str, amounts: Amounts, like: Pod) -> Pod:
    """Return the pod that holds the room of a booking: one container with these amounts, and the
    class, scheduler and constraints of `like`.
    """
    limits = amounts if like.qos == "Guaranteed" else {}
    return Pod(
        uid,
        NAMESPACE,
        name,
        like.qos,
        (Container("booked", "app", amounts, limits),),
        priority=like.priority,
        preemption_policy="Never",
        scheduler_name=like.scheduler_name,
        annotations=like.annotations,
        constraints=like.constraints,
    )


def less(pod: Pod, taken: Amounts) -> Pod:
    """Return a booking's pod without what its owners took."""
    return pod_for(pod.uid, pod.name, amounts_less(effective_request(pod), taken), pod)


def amounts_less(amounts: Amounts, taken: Amounts) -> Amounts:
    """Return what is left of amounts."""
    rest = {name: amount - taken.get(name, 0) for name, amount in amounts.items()}
    return {name: amount for name, amount in rest.items() if amount > 0}
