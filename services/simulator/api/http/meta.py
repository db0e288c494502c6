"""Everything that is not an object: discovery, versions, health, OpenAPI, reviews. Must not know
the store.
"""

from __future__ import annotations

from typing import Any

from services.simulator.api.core import discovery
from services.simulator.api.core.refusals import Refusal, method_not_allowed, resource_not_found
from services.simulator.api.http import openapi_v2
from services.simulator.api.http.negotiate import Form
from services.simulator.api.http.request import Request
from services.simulator.api.http.responses import (
    NO_SUCH_PAGE,
    Answer,
    refusal_answer,
    text_answer,
    value_answer,
)

Json = dict[str, Any]

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_HEALTH = ("healthz", "livez", "readyz")


def answer(request: Request, form: Form | None, address: str) -> Answer:
    """Answer a GET of discovery, version or health."""
    parts = [part for part in request.path.split("/") if part]
    if parts and parts[0] in _HEALTH and len(parts) == 1:
        return _health(request)
    if request.method not in ("GET", "HEAD"):
        return refusal_answer(method_not_allowed())
    if parts == ["openapi", "v2"]:
        return Answer(
            200, openapi_v2.document(), [(b"content-type", openapi_v2.CONTENT_TYPE.encode())]
        )
    form = form or Form("object")
    if parts in (["api"], ["apis"]) and form.shape == "Discovery":
        return value_answer(200, discovery.aggregated(core=parts == ["api"]), _AGGREGATED)
    body = _document(parts, address)
    return NO_SUCH_PAGE if body is None else value_answer(200, body, as_yaml=form.as_yaml)


def _health(request: Request) -> Answer:
    if "verbose" in request.query:
        name = request.path.strip("/")
        return text_answer(200, f"[+]ping ok\n[+]log ok\n[+]store ok\n{name} check passed\n")
    return text_answer(200, "ok")


def _document(parts: list[str], address: str) -> Json | None:
    match parts:
        case []:
            return discovery.root_paths()
        case ["version"]:
            return discovery.VERSION
        case ["api"]:
            return discovery.api_versions(address)
        case ["apis"]:
            return discovery.group_list()
        case ["api", version]:
            return discovery.resource_list("", version)
        case ["apis", group]:
            return discovery.group(group)
        case ["apis", group, version]:
            return discovery.resource_list(group, version)
        case ["openapi", "v3"]:
            return discovery.openapi_index()
        case ["openapi", "v3", "api", version]:
            return discovery.openapi_document("", version)
        case ["openapi", "v3", "apis", group, version]:
            return discovery.openapi_document(group, version)
    return None


def review(resource: str, request: Request, body: Any) -> Answer:
    """Answer a POST of a review: every client may do everything here."""
    if request.method != "POST":
        return refusal_answer(method_not_allowed())
    if isinstance(body, Refusal):
        return refusal_answer(body)
    given = body if isinstance(body, dict) else {}
    spec = given.get("spec") or {}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    anywhere = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    rules: Json = {
        "resourceRules": [everything],
        "nonResourceRules": [anywhere],
        "incomplete": False,
    }
    made: dict[str, tuple[str, str, Json]] = {
        "selfsubjectaccessreviews": (
            "SelfSubjectAccessReview",
            "authorization.k8s.io/v1",
            {"allowed": True},
        ),
        "selfsubjectrulesreviews": ("SelfSubjectRulesReview", "authorization.k8s.io/v1", rules),
        "selfsubjectreviews": (
            "SelfSubjectReview",
            "authentication.k8s.io/v1",
            {
                "userInfo": {
                    "username": "simulated-admin",
                    "groups": ["system:masters", "system:authenticated"],
                }
            },
        ),
    }
    if resource not in made:
        return refusal_answer(resource_not_found())
    kind, version, status = made[resource]
    return value_answer(
        201, {"kind": kind, "apiVersion": version, "metadata": {}, "spec": spec, "status": status}
    )
