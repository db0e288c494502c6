"""The gang that a pod belongs to: pods of which a minimum is placed together, or none.

1. A pod names its gang by keys of Koordinator, the coscheduling plugin or Volcano, or by
   `spec.schedulingGroup` (Kubernetes 1.36).
2. The minimum is in the pod's own keys, or in an object that the keys name: a PodGroup of one of
   four APIs (`Gang.api`).
3. Keys that cannot be read name no gang. `shared.domain.scheduler_keys` then lets the pod wait.

Sources: koordinator a7a1b76b (apis/extension/coscheduling.go), scheduler-plugins 903da7df
(apis/scheduling/v1alpha1), volcano-sh/apis 536f121 (scheduling/v1beta1/labels.go), kubernetes
(staging/src/k8s.io/api/scheduling/v1alpha2 and v1alpha3). This module does not know nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

PodGroupApi = Literal[
    "podgroup", "podgroup.x-k8s.io", "podgroup.sigs.k8s.io", "podgroup.volcano.sh"
]
# The API group of each PodGroup.
APIS: dict[PodGroupApi, str] = {
    "podgroup": "scheduling.k8s.io",
    "podgroup.x-k8s.io": "scheduling.x-k8s.io",
    "podgroup.sigs.k8s.io": "scheduling.sigs.k8s.io",
    "podgroup.volcano.sh": "scheduling.volcano.sh",
}
KUBERNETES: PodGroupApi = "podgroup"
VOLCANO: PodGroupApi = "podgroup.volcano.sh"

KOORDINATOR_NAME = "gang.scheduling.koordinator.sh/name"
KOORDINATOR_MIN = "gang.scheduling.koordinator.sh/min-available"
LIGHT_NAME = "pod-group.scheduling.sigs.k8s.io/name"
LIGHT_MIN = "pod-group.scheduling.sigs.k8s.io/min-available"
OBJECT_LABELS: dict[str, PodGroupApi] = {
    "pod-group.scheduling.sigs.k8s.io": "podgroup.sigs.k8s.io",
    "scheduling.x-k8s.io/pod-group": "podgroup.x-k8s.io",
}
VOLCANO_NAMES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_MIN = "scheduling.volcano.sh/group-min-member"


class Gang(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`name` is `namespace/name`. `minimum` pods are placed together; 0 if the object of this name
    and `api` has the number.
    """

    name: str
    minimum: int = 0
    api: PodGroupApi | Literal[""] = ""

    @property
    def key(self) -> str:
        """What distinguishes the gang; for gangs with an object, the stream of its events."""
        return f"{self.api}/{self.name}"


def gang_of(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Gang | None:
    """Return the gang that these keys name; None if there is none, if it has one member, or if it
    cannot be read. The order is Koordinator's.
    """
    for key, api in OBJECT_LABELS.items():
        if labels.get(key):
            return Gang(f"{namespace}/{labels[key]}", api=api)
    for words, name_key, minimum_key in (
        (labels, LIGHT_NAME, LIGHT_MIN),
        (annotations, KOORDINATOR_NAME, KOORDINATOR_MIN),
    ):
        if words.get(name_key):
            minimum = _number(words.get(minimum_key, ""))
            return Gang(f"{namespace}/{words[name_key]}", minimum) if minimum > 1 else None
    for name in (annotations[key] for key in VOLCANO_NAMES if annotations.get(key)):
        if VOLCANO_MIN not in annotations:
            return Gang(f"{namespace}/{name}", api=VOLCANO)
        minimum = _number(annotations[VOLCANO_MIN])
        return Gang(f"{namespace}/{name}", minimum, VOLCANO) if minimum > 1 else None
    return None


def _number(text: str) -> int:
    """The number, 0 if it cannot be read."""
    text = text.strip()
    return int(text) if len(text) < 10 and text.isascii() and text.isdecimal() else 0
