"""The gang that a pod belongs to: pods of which a minimum is placed together, or none.

1. A pod names its gang by keys of Koordinator, the coscheduling plugin or Volcano, or by
   `spec.schedulingGroup` (Kubernetes 1.36).
2. The minimum is in the pod's own keys, or in an object that the keys name: a PodGroup of one of
   four APIs (`Gang.api`).
3. Keys that cannot be read name no gang. `shared.domain.scheduler_keys` then lets the pod wait.
4. Koordinator's match policy says which earlier pods count for the minimum: all that were bound
   (`once-satisfied`, the default), live ones (`waiting-and-running`), or none (`only-waiting`).
5. All pods of a gang may have to be, or should be, on nodes with one value of a label:
   Koordinator's network topology, and `schedulingConstraints.topology` of Kubernetes.
6. A gang may say how long it waits for its minimum: Koordinator's waiting time, and
   `scheduleTimeoutSeconds` of PodGroups.

Sources: koordinator a7a1b76b (apis/extension/coscheduling.go), scheduler-plugins 903da7df
(apis/scheduling/v1alpha1), volcano-sh/apis 536f121 (scheduling/v1beta1/labels.go), kubernetes
(staging/src/k8s.io/api/scheduling/v1alpha2 and v1alpha3). This module does not know nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast, get_args

import msgspec

from shared.domain.durations import nanoseconds

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
MATCH_POLICIES = (
    "gang.scheduling.koordinator.sh/match-policy",
    "pod-group.scheduling.sigs.k8s.io/match-policy",
)
WAITING_TIME = "gang.scheduling.koordinator.sh/waiting-time"
PREFER_GATHER = "PreferGather"
NETWORK = "gang.scheduling.koordinator.sh/network-topology-spec"

SECOND_NS = 1_000_000_000
MatchPolicy = Literal["once-satisfied", "waiting-and-running", "only-waiting"]


class GangRules(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How pods of a gang count and where they may be. `required` and `preferred` are layers, from
    the widest to the narrowest: Koordinator's names of layers, or label keys of nodes. `problem`
    names what cannot be kept. `timeout_s`: how long some of its pods may be bound without the
    others, 0 for the setting.
    """

    match_policy: MatchPolicy = "once-satisfied"
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    problem: str = ""
    timeout_s: int = 0

    @property
    def has_layers(self) -> bool:
        """Return whether the rules say on which nodes the pods are together."""
        return bool(self.required or self.preferred)


class Gang(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`name` is `namespace/name`. `minimum` pods are placed together; 0 if the object of this name
    and `api` has the number, and rules.
    """

    name: str
    minimum: int = 0
    api: PodGroupApi | Literal[""] = ""
    rules: GangRules = GangRules()

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
            name = f"{namespace}/{words[name_key]}"
            return Gang(name, minimum, rules=rules_of(annotations)) if minimum > 1 else None
    for name in (annotations[key] for key in VOLCANO_NAMES if annotations.get(key)):
        if VOLCANO_MIN not in annotations:
            return Gang(f"{namespace}/{name}", api=VOLCANO)
        minimum = _number(annotations[VOLCANO_MIN])
        return Gang(f"{namespace}/{name}", minimum, VOLCANO) if minimum > 1 else None
    return None


def rules_of(annotations: Mapping[str, Any]) -> GangRules:
    """Return the rules in Koordinator's annotations of a pod or PodGroup. Like there, an unknown
    match policy is the default."""
    named = next((annotations[key] for key in MATCH_POLICIES if annotations.get(key)), "")
    policy = named if named in get_args(MatchPolicy) else "once-satisfied"
    rules, problem = _gather_rules(annotations.get(NETWORK) or "")
    return GangRules(
        cast("MatchPolicy", policy),
        tuple(rule.layer for rule in rules if rule.strategy != PREFER_GATHER),
        tuple(rule.layer for rule in rules if rule.strategy == PREFER_GATHER),
        problem,
        (nanoseconds(str(annotations.get(WAITING_TIME) or "")) or 0) // SECOND_NS,
    )


class _Gather(msgspec.Struct):
    layer: Annotated[str, msgspec.Meta(min_length=1, max_length=316)]
    strategy: Literal["MustGather", "PreferGather"]
    podCountMultiple: int = 0  # noqa: N815


class _Network(msgspec.Struct):
    gatherStrategy: Annotated[list[_Gather], msgspec.Meta(max_length=8)] = []  # noqa: N815


def _gather_rules(text: object) -> tuple[list[_Gather], str]:
    """Return the layers with their strategies, and what cannot be kept."""
    try:
        rules = msgspec.json.decode(str(text), type=_Network).gatherStrategy if text else []
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return [], f"an unreadable annotation {NETWORK}"
    if any(rule.podCountMultiple > 1 for rule in rules):
        return [], f"podCountMultiple in {NETWORK}"
    return rules, ""


def _number(text: str) -> int:
    """The number, 0 if it cannot be read."""
    text = text.strip()
    return int(text) if len(text) < 10 and text.isascii() and text.isdecimal() else 0
