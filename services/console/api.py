"""The HTTP API of the console, version 1: one table of endpoints, from which routes and the OpenAPI
description are made.

Each endpoint has a struct for its query parameters and one for its answer. Errors are
`{"error": ..., "remedy": ...}` with a status that says whose fault it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.replay.filters import FilterError, UnknownPod
from shared.eventlog.errors import LogUnavailable
from shared.ledger.fold import GapError
from shared.runtime.http import json_response

PREFIX = "/api/v1"
Q = TypeVar("Q", bound=msgspec.Struct)


class Problem(msgspec.Struct, frozen=True):
    """Why a question has no answer, and what to ask instead."""

    error: str
    remedy: str = ""


class Unanswerable(Exception):
    """The question cannot be answered now (503)."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


class Endpoint(msgspec.Struct, Generic[Q], frozen=True):
    """GET `path` with the query of `query`. `answer` is the type of the body; bytes are an SVG."""

    path: str
    summary: str
    query: type[Q]
    answer: Any
    handle: Callable[[Q], Awaitable[Any]]

    def route(self, prefix: str = "") -> Route:
        async def answer(request: Request) -> Response:
            return await _answered(self, request)

        return Route(prefix + PREFIX + self.path, answer, methods=["GET"])


async def _answered(endpoint: Endpoint[Any], request: Request) -> Response:
    given = dict(request.query_params)
    parameters = [field.name for field in msgspec.structs.fields(endpoint.query)]
    if extra := given.keys() - set(parameters):
        problem = f"unknown parameter {min(extra)!r}"
        return json_response(Problem(problem, f"one of {', '.join(parameters)}, or none"), 400)
    try:
        query = msgspec.convert(given, endpoint.query, strict=False)
        body = await endpoint.handle(query)
    except UnknownPod as error:
        return json_response(Problem(str(error), error.remedy), 404)
    except FilterError as error:
        return json_response(Problem(str(error), error.remedy), 400)
    except msgspec.ValidationError as error:
        return json_response(Problem(str(error), f"see {PREFIX}/openapi.json"), 400)
    except Unanswerable as error:
        return json_response(Problem(str(error), error.remedy), 503)
    except LogUnavailable as error:
        return json_response(Problem(str(error), "see whether Postgres answers"), 503)
    except GapError as error:
        return json_response(Problem(str(error), "topolog replay verify"), 503)
    if isinstance(body, bytes):
        return Response(body, media_type="image/svg+xml")
    return json_response(body)


def openapi(endpoints: list[Endpoint[Any]], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of the endpoints."""
    answers = [endpoint.answer for endpoint in endpoints if endpoint.answer is not bytes]
    template = "#/components/schemas/{name}"
    schemas, components = msgspec.json.schema_components([*answers, Problem], ref_template=template)
    by_answer = dict(zip(map(repr, answers), schemas[:-1], strict=True))
    paths = {
        PREFIX + endpoint.path: {"get": _operation(endpoint, by_answer, schemas[-1])}
        for endpoint in endpoints
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Topolog console", "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(
    endpoint: Endpoint[Any], by_answer: dict[str, Any], problem: dict[str, Any]
) -> dict[str, Any]:
    if endpoint.answer is bytes:
        content: dict[str, Any] = {"image/svg+xml": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": by_answer[repr(endpoint.answer)]}}
    failed = {"description": "why not", "content": {"application/json": {"schema": problem}}}
    return {
        "summary": endpoint.summary,
        "parameters": [_parameter(field) for field in msgspec.structs.fields(endpoint.query)],
        "responses": {
            "200": {"description": "the answer", "content": content},
            "400": failed,
            "404": failed,
            "503": failed,
        },
    }


def _parameter(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    schema = msgspec.json.schema(field.type)
    description = schema.pop("description", "")
    return {
        "name": field.name,
        "in": "query",
        "required": field.required,
        "description": description,
        "schema": schema,
    }
