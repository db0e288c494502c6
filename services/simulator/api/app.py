"""The ASGI application: a request in, routed by hand (cheaper than a router for some hundred
requests a second).

Must not know rules of kinds; those are in the core.
"""

from __future__ import annotations

import asyncio

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core import kinds
from services.simulator.api.core.refusals import Refusal, bad_request, refuse, resource_not_found
from services.simulator.api.http import meta, objects
from services.simulator.api.http.negotiate import Form, accepted, decoded_body, not_acceptable
from services.simulator.api.http.request import (
    Receive,
    Request,
    Scope,
    Send,
    TooLargeError,
    read_request,
)
from services.simulator.api.http.responses import NO_SUCH_PAGE, Answer, refusal_answer, send_answer
from services.simulator.api.http.routes import Missing, Target, Virtual, place_of
from services.simulator.api.http.watches import Watch, serve_watch
from services.simulator.api.settings import ApiSettings


class ApiApp:
    """The API server as an ASGI callable. `end_watches` lets a server stop without waiting for its
    watchers.
    """

    def __init__(self, store: ClusterStore, settings: ApiSettings) -> None:
        self.store = store
        self.settings = settings
        self._watches: set[Watch] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] != "http":
            return None
        try:
            request = await read_request(scope, receive, self.settings.max_body_bytes)
        except TooLargeError:
            text = f"Request entity too large: limit is {self.settings.max_body_bytes}"
            return await send_answer(
                send, refusal_answer(refuse(413, text, "RequestEntityTooLarge"))
            )
        return await self._answer(request, receive, send)

    async def _answer(self, request: Request, receive: Receive, send: Send) -> None:
        place = place_of(request.path)
        form = accepted(request.accept)
        if isinstance(place, Target):
            if form is None or form.shape == "Discovery":
                return await send_answer(send, refusal_answer(not_acceptable()))
            if request.method == "GET" and (
                place.watching or (request.flag("watch") and not place.name)
            ):
                return await serve_watch(
                    self.store, place, request, form, receive, send, self._watches
                )
            await self._await_version(request)
            return await send_answer(send, objects.answer(self.store, place, request, form))
        return await send_answer(send, self._elsewhere(place, request, form))

    def _elsewhere(
        self, place: Virtual | Missing | None, request: Request, form: Form | None
    ) -> Answer:
        if place is None:
            return meta.answer(request, form, self.settings.advertised_address)
        if isinstance(place, Missing):
            return refusal_answer(resource_not_found()) if place.status else NO_SUCH_PAGE
        body = decoded_body(kinds.PODS, request.content_type, request.body)
        if place.resource != "bindings":
            return meta.review(place.resource, request, body)
        if isinstance(body, Refusal):
            return refusal_answer(body)
        metadata = body.get("metadata") if isinstance(body, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not name:
            return refusal_answer(
                bad_request("name is required in a Binding posted to the collection")
            )
        return objects.bound(self.store, place.namespace, str(name), body, request)

    async def _await_version(self, request: Request) -> None:
        """Wait for a version that is not reached yet, for a limited time, as the real watch cache
        does.
        """
        if request.method != "GET" or "resourceVersion" not in request.query:
            return
        version = request.number("resourceVersion")
        left_s = self.settings.future_version_wait_s
        while version > self.store.version and left_s > 0:
            await asyncio.sleep(0.05)
            left_s -= 0.05

    def end_watches(self) -> None:
        """Close every open watch after its pending events are sent."""
        for watch in tuple(self._watches):
            watch.end()


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


def build_app(store: ClusterStore, settings: ApiSettings | None = None) -> ApiApp:
    """Return the ASGI application of a store."""
    return ApiApp(store, settings or store.settings)
