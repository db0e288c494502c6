"""Topology over HTTP: `/topology`, `/topology/{node}`, and its past state with `?position=N`.

`topolog replay verify` compares `/state`.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from services.topology_store import core, following
from services.topology_store.core import NodeState
from services.topology_store.handlers import Reports
from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import envelopes_of
from shared.events import streams
from shared.events.codec import UndecodableEvent, decode
from shared.kube import nrt
from shared.runtime.app import Service
from shared.runtime.http import json_response


def serve(service: Service, reports: Reports, log: EventLog) -> None:

    async def listing(_request: Request) -> Response:
        items = [
            summary(name, state)
            for name, state in sorted(reports.nodes.items())
            if state.version and not state.has_left
        ]
        return json_response({"nodes": items})

    async def node(request: Request) -> Response:
        name = request.path_params["node"]
        position = request.query_params.get("position", "")
        if position and not (position.isascii() and position.isdigit() and len(position) < 19):
            return json_response(
                {"error": f"position={position!r} is not a number; give a position of the log"}, 400
            )
        try:
            state = (
                await _state_at(log, name, int(position)) if position else reports.nodes.get(name)
            )
        except UndecodableEvent as error:
            return json_response({"error": str(error)}, 500)
        if state is None or state.report is None:
            return json_response(
                {"error": f"node {name!r} has not reported; see /topology for those that have"}, 404
            )
        if not position and state.is_removed:
            problem = (
                f"the Node object of {name!r} was deleted and the node is silent; "
                f"/topology/{name}?position=N shows an older state"
            )
            return json_response({"error": problem}, 404)
        return json_response({**summary(name, state), "topology": nrt.to_nrt(state.report)})

    async def hashes(_request: Request) -> Response:
        nodes = following.digests(reports.nodes)
        return json_response(
            {"projection": "topology-store", "position": reports.position, "nodes": nodes}
        )

    service.route("/state", hashes)
    service.route("/topology", listing)
    service.route("/topology/{node}", node)


def summary(name: str, state: NodeState) -> dict[str, object]:
    report = state.report
    return {
        "node": name,
        "version": state.version,
        "expired": state.expired,
        "locked": state.locked,
        "boot_id": report.boot_id if report else "",
        "zones": len(report.zones) if report else 0,
        "policy": report.policy if report else "",
    }


async def _state_at(log: EventLog, node: str, position: int) -> NodeState | None:
    state = core.initial()
    async for envelope in envelopes_of(log, streams.report(node)):
        if envelope.position > position:
            break
        state = core.evolve(state, decode(envelope), envelope.version, envelope.time_us // 1000)
    return state
