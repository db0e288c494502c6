"""The discovery documents of the server: resource lists, groups, versions, a tiny OpenAPI. Must not
know objects or HTTP.

Source: recordings A and B of kube-apiserver 1.36; README fact 6: an OpenAPI v3 document with one
PATCH operation a kind that takes `fieldValidation` is all that kubectl needs before create, apply
and server-side apply.
"""

from __future__ import annotations

from typing import Any

from services.simulator.api.core import kinds
from services.simulator.api.core.kinds import Kind

Json = dict[str, Any]

VERSION: Json = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-07-20T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_SUB_KINDS = {
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "finalize": ("", "", "Namespace", ["update"]),
    "resize": ("", "", "Pod", ["get", "patch", "update"]),
    "log": ("", "", "Pod", ["get"]),
    "exec": ("", "", "PodExecOptions", ["create", "get"]),
    "attach": ("", "", "PodAttachOptions", ["create", "get"]),
    "portforward": ("", "", "PodPortForwardOptions", ["create", "get"]),
    "scale": ("autoscaling", "v1", "Scale", ["get", "patch", "update"]),
}
_REVIEWS = (
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
)


def api_versions(address: str) -> Json:
    """GET /api, plain."""
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


def groups() -> list[tuple[str, str]]:
    """Named groups with their version, sorted."""
    return sorted((group, version) for group, version in kinds.GROUP_VERSIONS if group)


def group_list() -> Json:
    """GET /apis, plain."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, version) for name, version in groups()],
    }


def group(name: str) -> Json | None:
    """GET /apis/GROUP."""
    for group_name, version in groups():
        if group_name == name:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, version)}
    return None


def _group(name: str, version: str) -> Json:
    entry = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [entry], "preferredVersion": entry}


def resource_list(group_name: str, version: str) -> Json | None:
    """GET /api/v1 or /apis/GROUP/VERSION."""
    if (group_name, version) not in kinds.GROUP_VERSIONS:
        return None
    head: Json = (
        {"kind": "APIResourceList"}
        if not group_name
        else {"kind": "APIResourceList", "apiVersion": "v1"}
    )
    head["groupVersion"] = f"{group_name}/{version}" if group_name else version
    resources = [item for kind in _kinds_of(group_name) for item in _resources(kind)]
    return {
        **head,
        "resources": sorted(
            [*resources, *_virtual(group_name)], key=lambda item: str(item["name"])
        ),
    }


def _kinds_of(group_name: str) -> list[Kind]:
    return [kind for kind in kinds.KINDS if kind.group == group_name]


def _virtual(group_name: str) -> list[Json]:
    """Return the resources that clients only create."""
    resources = [(resource, kind, False) for name, resource, kind in _REVIEWS if name == group_name]
    if not group_name:
        resources.append(("bindings", "Binding", True))
    return [
        {
            "name": resource,
            "singularName": kind.lower(),
            "namespaced": scoped,
            "kind": kind,
            "verbs": ["create"],
        }
        for resource, kind, scoped in resources
    ]


def _resources(kind: Kind) -> list[Json]:
    resource: Json = {
        "name": kind.resource,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    return [resource, *(_subresource(kind, name) for name in kind.subresources)]


def _subresource(kind: Kind, name: str) -> Json:
    group_name, version, shown, verbs = _SUB_KINDS.get(
        name, ("", "", kind.kind, ["get", "patch", "update"])
    )
    entry: Json = {
        "name": f"{kind.resource}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
    }
    if group_name:
        entry |= {"group": group_name, "version": version}
    return {**entry, "kind": shown, "verbs": verbs}


def aggregated(*, core: bool) -> Json:
    """GET /api or /apis as APIGroupDiscoveryList v2."""
    chosen = [("", "v1")] if core else groups()
    items = [_aggregated_group(name, version) for name, version in chosen]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_group(name: str, version: str) -> Json:
    listed = resource_list(name, version) or {"resources": []}
    resources: dict[str, Json] = {}
    for item in listed["resources"]:
        if "/" not in item["name"]:
            resources[item["name"]] = _aggregated_resource(item, name, version)
    for item in listed["resources"]:
        owner, slash, sub = item["name"].partition("/")
        if slash:
            kind = {
                "group": item.get("group", name),
                "version": item.get("version", version),
                "kind": item["kind"],
            }
            entry = {"subresource": sub, "responseKind": kind, "verbs": item["verbs"]}
            resources[owner].setdefault("subresources", []).append(entry)
    body = {"version": version, "resources": list(resources.values()), "freshness": "Current"}
    return {"metadata": {"name": name} if name else {}, "versions": [body]}


def _aggregated_resource(item: Json, group_name: str, version: str) -> Json:
    entry: Json = {
        "resource": item["name"],
        "responseKind": {"group": group_name, "version": version, "kind": item["kind"]},
        "scope": "Namespaced" if item["namespaced"] else "Cluster",
        "singularResource": item["singularName"],
        "verbs": item["verbs"],
    }
    return {
        **entry,
        **{field: item[field] for field in ("shortNames", "categories") if field in item},
    }


def openapi_index() -> Json:
    """GET /openapi/v3."""
    places = [
        "api/v1" if not name else f"apis/{name}/{version}"
        for name, version in [("", "v1"), *groups()]
    ]
    return {
        "paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}?hash=1"} for place in places}
    }


def openapi_document(group_name: str, version: str) -> Json | None:
    """GET /openapi/v3/...: one PATCH operation for each kind, carrying a fieldValidation
    parameter.
    """
    if (group_name, version) not in kinds.GROUP_VERSIONS:
        return None
    paths = {object_path(kind): {"patch": _patch_operation(kind)} for kind in _kinds_of(group_name)}
    info = {"title": "Topolog simulated cluster", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def object_path(kind: Kind) -> str:
    """The path template of an object."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"{root}{place}/{kind.resource}/{{name}}"


def _patch_operation(kind: Kind) -> Json:
    parameter = {
        "name": "fieldValidation",
        "in": "query",
        "schema": {"type": "string", "uniqueItems": True},
    }
    return {
        "parameters": [parameter],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.kind,
        },
    }


def root_paths() -> Json:
    """GET /."""
    paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
    for name, version in groups():
        paths += [f"/apis/{name}", f"/apis/{name}/{version}"]
    return {"paths": sorted(paths)}
