"""Which fields a kind has: unknown fields and wrong JSON types in a body. Must not know rules about
values.

The field tables are read from lightkube's generated models (made from the Kubernetes OpenAPI
document). Messages are those of kube-apiserver's strict decoder.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from lightkube.models import (
    apps_v1,
    batch_v1,
    coordination_v1,
    core_v1,
    events_v1,
    meta_v1,
    node_v1,
    policy_v1,
    scheduling_v1,
    storage_v1,
)
from msgspec import inspect

from services.simulator.api.core.kinds import Kind


class ResourceInfo(msgspec.Struct):
    """One resource of a zone; quantities may be written as strings or numbers."""

    name: str
    capacity: str | int
    allocatable: str | int
    available: str | int


class CostInfo(msgspec.Struct):
    """Distance to another zone."""

    name: str
    value: int


class AttributeInfo(msgspec.Struct):
    """A name and value."""

    name: str
    value: str


class Zone(msgspec.Struct):
    """A NUMA zone."""

    name: str
    type: str
    parent: str | None = None
    costs: list[CostInfo] | None = None
    attributes: list[AttributeInfo] | None = None
    resources: list[ResourceInfo] | None = None


class NodeResourceTopology(msgspec.Struct):
    """noderesourcetopologies.topology.node.k8s.io/v1alpha2."""

    apiVersion: str  # noqa: N815
    kind: str
    metadata: meta_v1.ObjectMeta
    topologyPolicies: list[str] | None = None  # noqa: N815
    attributes: list[AttributeInfo] | None = None
    zones: list[Zone] | None = None


class Koordinator(msgspec.Struct):
    """devices and reservations of scheduling.koordinator.sh/v1alpha1."""

    apiVersion: str  # noqa: N815
    kind: str
    metadata: meta_v1.ObjectMeta
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


_MODELS: dict[str, Any] = {
    "Device": Koordinator,
    "Reservation": Koordinator,
    "NodeResourceTopology": NodeResourceTopology,
    "Binding": core_v1.Binding,
    "Eviction": policy_v1.Eviction,
    "DeleteOptions": meta_v1.DeleteOptions,
    "Pod": core_v1.Pod,
    "Node": core_v1.Node,
    "Namespace": core_v1.Namespace,
    "Service": core_v1.Service,
    "v1/Event": core_v1.Event,
    "events.k8s.io/v1/Event": events_v1.Event,
    "Lease": coordination_v1.Lease,
    "PodDisruptionBudget": policy_v1.PodDisruptionBudget,
    "ConfigMap": core_v1.ConfigMap,
    "PriorityClass": scheduling_v1.PriorityClass,
    "Deployment": apps_v1.Deployment,
    "ReplicaSet": apps_v1.ReplicaSet,
    "StatefulSet": apps_v1.StatefulSet,
    "Job": batch_v1.Job,
    "PersistentVolume": core_v1.PersistentVolume,
    "PersistentVolumeClaim": core_v1.PersistentVolumeClaim,
    "CSINode": storage_v1.CSINode,
    "RuntimeClass": node_v1.RuntimeClass,
}
_QUANTITY_MAPS = frozenset(
    {"requests", "limits", "capacity", "allocatable", "overhead", "podFixed", "allocatedResources"}
)
_STRING_MAPS = frozenset({"labels", "annotations", "matchLabels", "nodeSelector"})
_GO_NAMES = {
    str: "string",
    bool: "bool",
    dict: "object",
    list: "array",
    int: "number",
    float: "number",
}


class Findings(msgspec.Struct, frozen=True):
    """Paths of unknown fields, and the first JSON type error in Go's words ("" for none)."""

    unknown: tuple[str, ...]
    wrong_type: str = ""


class _Node(msgspec.Struct):
    """The values that are allowed at one path: `form` is struct, list, map, string, int, bool or
    any."""

    form: str
    go_type: str
    name: str = ""
    fields: dict[str, Any] = {}
    # Struct fields and items are nodes, or model classes that become nodes on their first visit
    # (models are recursive).
    item: Any = None


_STRING = _Node("string", "string")


def examine(kind: Kind, body: dict[str, Any], *, patch: bool = False) -> Findings:
    """Check a body against its kind's fields. In a patch, null means removal and `$` fields are
    directives.
    """
    model = _MODELS.get(kind.kind) or _MODELS[f"{kind.api_version}/{kind.kind}"]
    walk = _Walk(patch)
    walk.visit(_node_of(model), body, "", "")
    return Findings(tuple(walk.unknown), walk.wrong_type)


def mistyped(model: str, body: Any) -> str:
    """Return the first type error in a Binding, Eviction or DeleteOptions in Go's words, empty for
    none."""
    walk = _Walk(patch=True)
    walk.visit(_node_of(_MODELS[model]), body, "", "")
    return walk.wrong_type


class _Walk:
    def __init__(self, patch: bool) -> None:
        self.patch = patch
        self.unknown: list[str] = []
        self.wrong_type = ""

    def visit(self, node: _Node, value: Any, path: str, owner: str) -> None:
        """Check a value. `path` has indices (for unknown fields), `owner` is `Struct.json.path`
        (for type errors).
        """
        if value is None or node.form == "any":
            return
        if node.form == "struct" and isinstance(value, dict):
            self._struct(node, value, path, owner)
        elif node.form == "list" and isinstance(value, list):
            for index, item in enumerate(value):
                self.item(_resolve(node.item), item, f"{path}[{index}]", owner)
        elif node.form == "map" and isinstance(value, dict):
            self._map(node, value, path, owner)
        elif not _fits(node.form, value) and not self.wrong_type:
            errors = _GO_NAMES[type(value)]
            self.wrong_type = (
                f"json: cannot unmarshal {errors} into Go struct field {owner} of "
                f"type {node.go_type}"
            )

    def _map(self, node: _Node, value: dict[str, Any], path: str, owner: str) -> None:
        field = path.rpartition(".")[2]
        if field in _QUANTITY_MAPS:
            return
        element = _STRING if field in _STRING_MAPS else _resolve(node.item)
        for key, item in value.items():
            if item is not None or not self.patch:
                self.item(element, item, f"{path}.{key}", owner)

    def item(self, node: _Node, value: Any, path: str, owner: str) -> None:
        """Check an element of a list or map. Unlike a field, it may not be null."""
        if value is None:
            self.wrong_type = self.wrong_type or (
                f"json: cannot unmarshal null into Go struct field {owner} of type {node.go_type}"
            )
        else:
            self.visit(node, value, path, owner)

    def _struct(self, node: _Node, value: dict[str, Any], path: str, owner: str) -> None:
        trail = owner.partition(".")[2]
        for key, item in value.items():
            place = f"{path}.{key}" if path else key
            child = node.fields.get(key)
            if child is None and self.patch and key.startswith("$"):
                continue
            if child is None:
                self.unknown.append(place)
            else:
                self.visit(
                    _resolve(child), item, place, f"{node.name}.{trail + '.' if trail else ''}{key}"
                )


def _fits(form: str, value: Any) -> bool:
    if form == "string":
        return isinstance(value, str)
    if form == "bool":
        return isinstance(value, bool)
    if form == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    return False


def _resolve(child: Any) -> _Node:
    return child if isinstance(child, _Node) else _node_of(child)


@lru_cache(maxsize=1024)
def _node_of(model: Any) -> _Node:
    """The node of a model class; its fields' structs are resolved on first visit."""
    info = inspect.type_info(model)
    if not isinstance(info, inspect.StructType):
        return _Node("any", "interface {}")
    fields = {field.encode_name: _from_type(field.type) for field in info.fields}
    return _Node("struct", f"v1.{model.__name__}", model.__name__, fields)


def _from_type(kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.UnionType):
        real = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
        return _from_type(real[0]) if len(real) == 1 else _Node("any", "interface {}")
    if isinstance(kind, inspect.StructType):
        return kind.cls
    if isinstance(kind, inspect.ListType):
        item = _from_type(kind.item_type)
        return _Node("list", f"[]{_go_type(item)}", item=item)
    if isinstance(kind, inspect.DictType):
        item = _from_type(kind.value_type)
        return _Node("map", f"map[string]{_go_type(item)}", item=item)
    return _scalar(kind)


def _scalar(kind: inspect.Type) -> _Node:
    if isinstance(kind, inspect.StrType):
        return _Node("string", "string")
    if isinstance(kind, inspect.BoolType):
        return _Node("bool", "bool")
    if isinstance(kind, inspect.IntType):
        return _Node("int", "int64")
    return _Node("any", "interface {}")


def _go_type(item: Any) -> str:
    return item.go_type if isinstance(item, _Node) else f"v1.{item.__name__}"
