"""The scheduling constraints of a pod spec apart from resources. Fields that Topolog does not
implement are named, never ignored.

Preferences among pods (preferred pod affinity, ScheduleAnyway) restrict nothing and are left out. A
spec field that no known version of Kubernetes has is named, too, because it might restrict. This
module does not know nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.pod import Constraints, NodeSelectorTerm, Toleration

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")

_FREE_VOLUMES = frozenset(
    (
        "name",
        "emptyDir",
        "configMap",
        "secret",
        "projected",
        "downwardAPI",
        "hostPath",
        "image",
        "nfs",
        "csi",
        "gitRepo",
    )
)
_RESTRICTING_LISTS = ("resourceClaims",)
_RESTRICTING_OBJECTS = ("workloadRef",)
KNOWN_FIELDS = frozenset(
    (
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "evictionResponders",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
        "workloadRef",
    )
)

Requirement = tuple[str, str, tuple[str, ...]]


def from_spec(spec: Json) -> Constraints:
    """Return the constraints of a pod spec (core/v1 PodSpec). Raises `fields.RefusedError` for
    wrong types.
    """
    return Constraints(
        node_name=fields.name(spec, "nodeName", "spec") if spec.get("nodeName") else "",
        node_selector=fields.texts(spec, "nodeSelector", "spec"),
        required_affinity=_required_affinity(spec),
        preferred_affinity=_preferred_affinity(spec),
        tolerations=tuple(
            _toleration(doc, path) for path, doc in fields.objects(spec, "tolerations", "spec")
        ),
        unsupported=tuple(sorted(set(_unsupported(spec)))),
        gates=tuple(
            fields.text(gate, "name", path)
            for path, gate in fields.objects(spec, "schedulingGates", "spec")
        ),
    )


def _toleration(doc: Json, path: str) -> Toleration:
    effect = fields.text(doc, "effect", path)
    if effect not in EFFECTS:
        raise fields.refuse(
            f"{path}.effect", effect, "write NoSchedule, PreferNoSchedule, NoExecute or nothing"
        )
    return Toleration(
        key=fields.text(doc, "key", path),
        operator=fields.text(doc, "operator", path) or "Equal",
        value=fields.text(doc, "value", path),
        effect=effect,
    )


def _required_affinity(spec: Json) -> tuple[NodeSelectorTerm, ...]:
    node_affinity = fields.mapping(
        fields.mapping(spec, "affinity", "spec"), "nodeAffinity", "spec.affinity"
    )
    if node_affinity.get(REQUIRED) is None:
        return ()
    path = f"spec.affinity.nodeAffinity.{REQUIRED}"
    return node_selector_terms(fields.as_mapping(node_affinity[REQUIRED], path), path)


def node_selector_terms(selector: Json, path: str) -> tuple[NodeSelectorTerm, ...]:
    """Return the terms of a core/v1 NodeSelector, one of which must match. Raises
    `fields.RefusedError`, also if there is none.
    """
    terms = fields.objects(selector, "nodeSelectorTerms", path)
    if not terms:
        raise fields.refuse(
            f"{path}.nodeSelectorTerms", [], "write at least one term, or leave the affinity out"
        )
    return tuple(_term(doc, term_path) for term_path, doc in terms)


def _preferred_affinity(spec: Json) -> tuple[tuple[int, NodeSelectorTerm], ...]:
    node_affinity = fields.mapping(
        fields.mapping(spec, "affinity", "spec"), "nodeAffinity", "spec.affinity"
    )
    path = f"spec.affinity.nodeAffinity.{PREFERRED}"
    terms = []
    for term_path, doc in fields.objects(node_affinity, PREFERRED, path):
        weight = fields.integer(doc, "weight", term_path)
        if not 1 <= weight <= 100:
            raise fields.refuse(f"{term_path}.weight", weight, "write a whole number from 1 to 100")
        terms.append(
            (weight, _term(fields.mapping(doc, "preference", term_path), f"{term_path}.preference"))
        )
    return tuple(terms)


def _term(doc: Json, path: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        expressions=tuple(
            _requirement(*entry) for entry in fields.objects(doc, "matchExpressions", path)
        ),
        fields=tuple(_requirement(*entry) for entry in fields.objects(doc, "matchFields", path)),
    )


def _requirement(path: str, doc: Json) -> Requirement:
    operator = fields.text(doc, "operator", path)
    if operator not in OPERATORS:
        raise fields.refuse(f"{path}.operator", operator, f"write one of {', '.join(OPERATORS)}")
    key = fields.text(doc, "key", path)
    if not key:
        raise fields.refuse(f"{path}.key", key, "write the label or field to compare")
    return key, operator, fields.text_list(doc, "values", path)


def _unsupported(spec: Json) -> Iterator[str]:
    yield from _unsupported_affinity(spec)
    yield from (f"spec.{key}" for key in _RESTRICTING_LISTS if fields.items(spec, key, "spec"))
    yield from (f"spec.{key}" for key in _RESTRICTING_OBJECTS if spec.get(key) is not None)
    group = fields.mapping(spec, "schedulingGroup", "spec")
    yield from (f"spec.schedulingGroup.{key}" for key in group if key != "podGroupName")
    yield from (f"spec.{key}" for key in spec if key not in KNOWN_FIELDS)
    for path, spread in fields.objects(spec, "topologySpreadConstraints", "spec"):
        if fields.text(spread, "whenUnsatisfiable", path) != "ScheduleAnyway":
            yield "spec.topologySpreadConstraints"
    if fields.text(fields.mapping(spec, "os", "spec"), "name", "spec.os") not in ("", "linux"):
        yield "spec.os.name"
    for _, volume in fields.objects(spec, "volumes", "spec"):
        yield from (f"spec.volumes.{kind}" for kind in volume if kind not in _FREE_VOLUMES)
    yield from _unsupported_in_containers(spec)


def _unsupported_affinity(spec: Json) -> Iterator[str]:
    affinity = fields.mapping(spec, "affinity", "spec")
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = fields.items(
            fields.mapping(affinity, kind, "spec.affinity"), REQUIRED, f"spec.affinity.{kind}"
        )
        if terms:
            yield f"spec.affinity.{kind}.{REQUIRED}"
    implemented = ("nodeAffinity", "podAffinity", "podAntiAffinity")
    yield from (f"spec.affinity.{kind}" for kind in affinity if kind not in implemented)


def _unsupported_in_containers(spec: Json) -> Iterator[str]:
    host_network = fields.flag(spec, "hostNetwork", "spec")
    for group in ("containers", "initContainers"):
        for path, container in fields.objects(spec, group, "spec"):
            ports = fields.objects(container, "ports", path)
            if any(
                host_network or fields.integer(port, "hostPort", port_path)
                for port_path, port in ports
            ):
                yield f"spec.{group}.ports.hostPort"
            if fields.items(
                fields.mapping(container, "resources", path), "claims", f"{path}.resources"
            ):
                yield f"spec.{group}.resources.claims"
