"""The form of answers that a client accepts, and the form of its request body. Must not know kinds'
rules or storage.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.refusals import Refusal, bad_request, refuse
from services.simulator.api.core.strategies import unrecognized
from services.simulator.api.http import protobuf
from shared.domain import yaml_text

PATCH_FORMS = {
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/json-patch+json": "json",
    "application/apply-patch+yaml": "apply",
    "application/apply-patch+cbor": "",
}
_PROTOBUF = "application/vnd.kubernetes.protobuf"


class Form(msgspec.Struct, frozen=True):
    """`shape` is object, Table, PartialObjectMetadata or Discovery; `as_yaml` the encoding."""

    shape: str
    as_yaml: bool = False


@lru_cache(maxsize=256)
def accepted(accept: str) -> Form | None:
    """Return the first form of an Accept header that this server can give; None for none (406)."""
    if not accept.strip():
        return Form("object")
    for part in accept.split(","):
        media, *parameters = [piece.strip() for piece in part.split(";")]
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        form = _form(media.lower(), options)
        if form is not None:
            return form
    return None


def _form(media: str, options: dict[str, str]) -> Form | None:
    if media in ("*/*", "application/*"):
        return Form("object")
    if media not in ("application/json", "application/yaml"):
        return None
    shape = options.get("as", "")
    if shape == "Table" and options.get("g") == "meta.k8s.io" and options.get("v") == "v1":
        return Form("Table", media == "application/yaml")
    if shape in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return Form("PartialObjectMetadata", media == "application/yaml")
    if shape == "APIGroupDiscoveryList":
        return Form("Discovery") if options.get("v") == "v2" else None
    return None if shape else Form("object", media == "application/yaml")


def not_acceptable() -> Refusal:
    """Return the answer 406 in the server's words."""
    supported = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    return refuse(
        406, f"406: Not Acceptable\n\nAvailable representations: {supported}", "NotAcceptable", {}
    )


def decoded_body(kind: Kind, content_type: str, body: bytes) -> Any:
    """Return the JSON value of a request body, or a Refusal: 400 if it is not JSON, 415 for another
    media type.
    """
    if content_type == _PROTOBUF:
        decoded = protobuf.decode(body)
        return decoded if decoded is not None else _unsupported_body()
    if content_type not in (
        "",
        "application/json",
        "application/yaml",
        "application/apply-patch+yaml",
    ) and (content_type not in PATCH_FORMS):
        return _unsupported_body()
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if "yaml" in content_type:
            return _from_yaml(body)
        return unrecognized(
            kind, f"couldn't get version/kind; json parse error: {_go_error(error)} ({_echo(body)})"
        )


def _go_error(error: Exception) -> str:
    text = str(error)
    return "unexpected end of JSON input" if "truncated" in text else text


def _echo(body: bytes) -> str:
    return body[:256].decode("utf-8", "replace")


def _from_yaml(body: bytes) -> Any:
    try:
        return yaml_text.document(body)
    except (yaml_text.YAMLError, ValueError, RecursionError) as error:
        return bad_request(f"error decoding YAML: {str(error).splitlines()[0]}")


def _unsupported_body() -> Refusal:
    supported = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    text = (
        "the body of the request was in an unknown format - accepted media types "
        f"include: {supported}"
    )
    return refuse(415, text, "UnsupportedMediaType")


def patch_form(kind: Kind, content_type: str) -> str | Refusal:
    """Return merge, strategic, json or apply; 415 if the kind does not support it."""
    form = PATCH_FORMS.get(content_type, "")
    if kind.custom and form in ("", "strategic"):
        supported = (
            "application/json-patch+json, application/merge-patch+json, "
            "application/apply-patch+yaml"
        )
        text = (
            "the body of the request was in an unknown format - accepted media types "
            f"include: {supported}"
        )
        return refuse(415, text, "UnsupportedMediaType")
    return form or refuse(415, "415: Unsupported Media Type", "UnsupportedMediaType", {})
