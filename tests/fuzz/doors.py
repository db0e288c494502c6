"""The doors for foreign bytes, each with good inputs to begin from and the processing of one.

A door is entered as the service enters it, further steps included: a report goes to the store's
judgement and the scheduler's fold, an admitted pod to the kubelet model.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml
from google.protobuf.message import DecodeError

from services.cli.admit import admitted_in_order, load_machine, load_pods, started
from services.cli.output import CommandError
from services.exporter import core as exporter
from services.exporter import kubelet_config, wire
from services.exporter.podresources import podresources_pb2 as pb
from services.exporter.sysfs import Machine, NumaNode
from services.scheduler.watch import pods_and_nodes
from services.scheduler.watch.seen_specs import SeenSpecs
from services.simulator import listing
from services.simulator.api.app import build_app
from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.settings import ApiSettings
from services.topology_store import core as store
from services.topology_store import validation
from services.topology_store.core import Accepted
from shared.bus import subjects
from shared.domain import quantity
from shared.domain.report import Freshness, Report
from shared.events import streams
from shared.events.catalog import CATALOG
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.codec import UndecodableEvent, decode, encode
from shared.events.envelope import Envelope
from shared.kube import lists, nrt
from shared.kubelet.checkpoint import (
    memory_checkpoint,
    read_cpu,
    read_memory,
    write_cpu,
    write_memory,
)
from shared.kubelet.checkpoint_devices import device_checkpoint, read_devices, write_devices
from shared.ledger.state import Ledger
from tests.cli.test_admit import MACHINE, gpu_pod
from tests.fuzz import node_doors
from tests.fuzz.door import Door
from tests.fuzz.mutation import altered, as_json, damaged
from tests.kubelet import machines
from tests.scheduler.observer.test_what_is_kept import AFFINITY, SPREAD, manifest
from tests.topology_store.test_accepted_reports import GIB, Service, pod
from tests.topology_store.words import lists as listed
from tests.topology_store.words import report

NODE = streams.node("n1")
NOW_MS = 10**12


def _of(documents: list[Any]) -> Callable[[random.Random], bytes]:
    """Return a maker of inputs from JSON documents."""
    return lambda rng: as_json(rng, rng.choice(documents), documents)


def _of_bytes(seeds: list[bytes]) -> Callable[[random.Random], bytes]:
    return lambda rng: damaged(rng, rng.choice(seeds))


# -- reports
# --------------------------------------------------------------------------------------------------

_REPORTS = [
    msgspec.to_builtins(made, str_keys=True)
    for made in (
        report(
            placements=listed("p0", "p1"),
            fingerprint="pfp0v0010011223344556677",
            options={"full-pcpus-only": "true"},
        ),
        report(
            policy="best-effort", scope="pod", placements=listed("p2", "stranger"), boot="boot-2"
        ),
        report(policy="restricted", placements=None, at=50_000),
    )
]


def _read_report(data: bytes) -> None:
    validation.read(subjects.report("n1"), data)


def _decide_on_report(data: bytes) -> None:
    """Fold an accepted report, wake waiting pods, and decide on them."""
    read = validation.read(subjects.report("n1"), data)
    if not isinstance(read, Report):
        return
    service, ledger = Service(), store.initial()
    allocatable = {"cpu": 64_000, "memory": 64 * GIB, "pods": 99}
    service.hear(NODE, NodeObserved("n1", "uid", allocatable=allocatable))
    for name, cpu in (("p0", 1000), ("p1", 4000)):
        service.hear(
            streams.pod(name),
            PodObserved(pod(name, cpu, 0, True), node="n1" if name == "p1" else ""),
        )
    for version, each_report in enumerate((report(placements=listed("p1")), read), 1):
        ledger.expired = True
        decision = store.decide(ledger, each_report, NOW_MS)
        if isinstance(decision, Accepted):
            store.evolve(ledger, decision.event, version, NOW_MS)
            service.hear(streams.report("n1"), decision.event)
        service.decide()


# -- events, quantities, manifests
# --------------------------------------------------------------------------------------------------

_FACTS = [
    (vector["type"], vector["schema"], json.loads(case["payload"]))
    for path in sorted((Path(__file__).parents[1] / "events" / "vectors").glob("*.json"))
    for vector in [json.loads(path.read_bytes())]
    for case in vector["cases"]
]


def _make_event(rng: random.Random) -> bytes:
    name, schema, payload = rng.choice(_FACTS)
    if rng.random() < 0.05:
        name, schema = rng.choice(_FACTS)[0], rng.choice((0, 1, 2, 99))
    return f"{name} {schema} ".encode() + as_json(rng, payload, [each[2] for each in _FACTS])


def _read_event(data: bytes) -> None:
    name, schema, payload = data.split(b" ", 2)
    event = decode(Envelope(1, "s", 1, name.decode(), int(schema), payload, 0, "r", 0, "c"))
    again = encode(event)
    assert (
        encode(
            decode(
                Envelope(
                    1, "s", 1, name.decode(), CATALOG[name.decode()].schema, again, 0, "r", 0, "c"
                )
            )
        )
        == again
    )


_QUANTITIES = [
    b"1",
    b"100m",
    b"1.5Gi",
    b"-2e3",
    b"12E",
    b"0.000000001n",
    b"1Ki",
    b"+.5",
    b"9223372036854775807",
    b"1e-9",
    b"5.",
]


def _read_quantity(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    for resource in ("cpu", "memory", "example.com/gpu"):
        quantity.format_amount(resource, quantity.amount(resource, text))
    quantity.parse(text)


_MANIFESTS = [
    manifest(affinity=AFFINITY, topologySpreadConstraints=SPREAD, nodeName="n1"),
    {
        **gpu_pod("p"),
        "status": {"phase": "Failed", "reason": "TopologyAffinityError", "message": "m"},
    },
]


def _read_manifest(data: bytes) -> None:
    """Read a manifest as the observer reads an object of the API, which is a JSON object."""
    try:
        obj = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    lists.page_problem(
        "pods", {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [obj]}
    )
    if isinstance(obj, dict):
        for event in (
            pods_and_nodes.pod_event(Ledger(), frozenset({"topolog"}), obj, SeenSpecs()),
            pods_and_nodes.node_event(Ledger(), obj),
        ):
            if event is not None:
                encode(event)


# -- files
# --------------------------------------------------------------------------------------------------

_SETUPS = [MACHINE, {**MACHINE, "zones": MACHINE["zones"][:1], "devices": {}}]
_SHOWN = [gpu_pod("p"), {"kind": "List", "items": [gpu_pod("a", "1500m")]}]


def _make_admission(rng: random.Random) -> bytes:
    """Make machine and pods in one input, with a byte 1 between them. JSON is YAML."""
    machine, pods = rng.choice(_SETUPS), rng.choice(_SHOWN)
    if rng.random() < 0.5:
        machine = altered(rng, machine, _SETUPS)
    else:
        pods = altered(rng, pods, _SHOWN)
    texts = [json.dumps(each).encode() for each in (machine, pods)]
    zone_id = rng.randrange(2)
    if rng.random() < 0.3:
        texts[zone_id] = damaged(rng, texts[zone_id])
    return b"\x01".join(text.replace(b"\x01", b"") for text in texts)


def _admit(data: bytes) -> None:
    machine, pods = data.split(b"\x01")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("machine.yaml", "pods.yaml")]
        for path, text in zip(paths, (machine, pods), strict=True):
            path.write_bytes(text)
        setup = load_machine(paths[0])
        list(
            admitted_in_order(
                started(setup, paths[0]), load_pods(paths[1])[:5], setup.allocatable()
            )
        )


_KUBELET = [
    {
        "kind": "KubeletConfiguration",
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "8"},
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "memoryManagerPolicy": "Static",
    }
]


def _make_configuration(rng: random.Random) -> bytes:
    """Make a YAML file, sometimes a very long one."""
    made = altered(rng, _KUBELET[0], _KUBELET)
    try:
        text = yaml.safe_dump(made).encode()
    except RecursionError:
        text = json.dumps(made).encode()
    text = damaged(rng, text) if rng.random() < 0.5 else text
    return text + b"# more\nx: [1, 2]\n" * 400_000 if rng.random() < 0.002 else text


def _read_configuration(data: bytes) -> None:
    kubelet_config.parse(data, "config.yaml")


def _kubelet() -> Any:
    from shared.kubelet.admission import admit

    state = machines.kubelet(gpus={"gpu-0": 1, "gpu-1": 2})
    for name in ("a", "b"):
        state = admit(
            state, machines.guaranteed(name, machines.container(cpu=2, memory=1, gpus=1))
        ).state
    return state


def _checkpoints() -> list[Any]:
    from shared.kubelet.checkpoint import CpuCheckpoint

    state = _kubelet()
    cpu = CpuCheckpoint(
        "static", state.cpu.default_set if hasattr(state.cpu, "default_set") else 0, {"u": {"c": 6}}
    )
    made = (
        write_cpu(cpu),
        write_memory(memory_checkpoint(state.memory)),
        write_devices(device_checkpoint(state.devices)),
    )
    return [json.loads(text) for text in made]


_CHECKPOINTS = _checkpoints()


def _read_checkpoints(data: bytes) -> None:
    for verify in (True, False):
        read_cpu(data, verify=verify)
        read_memory(data, verify=verify)
        read_devices(data, verify=verify)


# -- podresources, NodeResourceTopology
# --------------------------------------------------------------------------------------------------

_TREE = Machine(
    tuple(
        NumaNode(zone, tuple(range(zone * 8, zone * 8 + 8)), 16 * GIB, {}, {0: 10, 1: 21})
        for zone in (0, 1)
    )
)


def _listing_messages() -> list[bytes]:
    state = _kubelet()
    pods = [
        machines.guaranteed(name, machines.container(cpu=2, memory=1, gpus=1))
        for name in ("a", "b")
    ]
    return [
        b"".join(listing.pod_message(each, state) for each in pods),
        listing.allocatable_message(state),
    ]


_MESSAGES = _listing_messages()


def _make_listing(rng: random.Random) -> bytes:
    zone_id = rng.randrange(2)
    return bytes([zone_id]) + damaged(rng, _MESSAGES[zone_id])


def _read_listing(data: bytes) -> None:
    """Damage one of the two answers, and make a report of both for the store to read."""
    texts = [data[1:] if index == data[0] else message for index, message in enumerate(_MESSAGES)]
    pods = wire.pods(pb.ListPodResourcesResponse.FromString(texts[0]))
    allocatable = wire.allocatable(pb.AllocatableResourcesResponse.FromString(texts[1]))
    scan = exporter.Scan(Freshness("boot", 5), _TREE, allocatable, pods)
    made = exporter.report("n1", "exporter-1", scan, exporter.Rules())
    validation.read(subjects.report("n1"), msgspec.json.encode(made))


_TOPOLOGIES = [
    json.loads(
        json.dumps(
            nrt.to_nrt(report(placements=listed("p0"), fingerprint="pfp0v0010011223344556677"))
        )
    )
]


def _read_topology(data: bytes) -> None:
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    validation.read(subjects.report("n1"), msgspec.json.encode(nrt.from_nrt(document, "boot", 5)))


# -- the simulator's HTTP
# --------------------------------------------------------------------------------------------------

_POD = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
_POD_PATH = "/api/v1/namespaces/default/pods"
_BINDING = {"metadata": {"name": "p"}, "target": {"name": "n"}}
_READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
_LABELS = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
_NODE_STATUS = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "8"}}}


def _asked(
    method: str, path: str, body: Any, content_type: str = "application/json", query: str = ""
) -> dict[str, Any]:
    return {"method": method, "path": path, "body": body, "type": content_type, "query": query}


_REQUESTS = [
    _asked("POST", _POD_PATH, _POD),
    _asked("POST", "/api/v1/namespaces/default/bindings", _BINDING),
    _asked("POST", f"{_POD_PATH}/p/binding", _BINDING),
    _asked("POST", f"{_POD_PATH}/p/eviction", {"metadata": {"name": "p"}}),
    _asked("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {}, "status": {}}),
    _asked("PATCH", f"{_POD_PATH}/p/status", _READY, "application/strategic-merge-patch+json"),
    _asked("PATCH", "/api/v1/nodes/n", _LABELS, "application/json-patch+json"),
    _asked(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": {}}},
    ),
    _asked("GET", "/api/v1/pods", None, query="limit=2&labelSelector=a%3Db"),
    _asked("DELETE", f"{_POD_PATH}/p", {"gracePeriodSeconds": 0}),
    _asked("PUT", "/api/v1/nodes/n/status", _NODE_STATUS),
]


def _make_request(rng: random.Random) -> bytes:
    """Make a request whose first line is mostly valid, because otherwise the server would read few
    bodies.
    """
    request = rng.choice(_REQUESTS)
    bodies = [each["body"] for each in _REQUESTS]
    made = {**request, "body": altered(rng, request["body"], bodies)}
    if rng.random() < 0.15:
        made = {**made, "path": damaged(rng, str(made["path"]).encode()).decode(errors="replace")}
    if rng.random() < 0.1:
        made = {
            **made,
            "query": damaged(
                rng, b"limit=2&continue=x&resourceVersion=1&watch=0&fieldSelector=a"
            ).decode(errors="replace"),
        }
    return json.dumps(made).encode()


def _request(data: bytes) -> None:
    asked = json.loads(data)
    app = build_app(ClusterStore(ApiSettings(future_version_wait_s=0.0), seed=1))
    app.store.create("pods", {**_POD, "metadata": {"name": "p"}}, "default")
    body, sent = json.dumps(asked.get("body")).encode(), list[dict[str, Any]]()
    scope = {
        "type": "http",
        "method": asked["method"],
        "path": asked["path"],
        "raw_path": asked["path"].encode(errors="replace"),
        "query_string": asked.get("query", "").encode(errors="replace"),
        "headers": [(b"content-type", asked.get("type", "application/json").encode())],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asyncio.wait_for(app(scope, receive, send), 5.0))
    assert sent, "no answer"
    assert 100 <= sent[0]["status"] < 600, sent[0]


_ALL = (
    Door(
        "report", "bytes of the report stream, at the topology-store", _of(_REPORTS), _read_report
    ),
    Door(
        "decision",
        "an accepted report, through the ledger to the scheduler's decision",
        _of(_REPORTS),
        _decide_on_report,
    ),
    Door(
        "fact",
        "a stored fact, decoded and written again",
        _make_event,
        _read_event,
        (UndecodableEvent,),
    ),
    Door(
        "quantity",
        "a Kubernetes quantity",
        _of_bytes(_QUANTITIES),
        _read_quantity,
        (quantity.QuantityError,),
    ),
    Door("manifest", "a pod or node of the API, at the observer", _of(_MANIFESTS), _read_manifest),
    Door(
        "admit", "machine and pod files of topolog admit", _make_admission, _admit, (CommandError,)
    ),
    Door(
        "kubelet-config",
        "a KubeletConfiguration, at the exporter",
        _make_configuration,
        _read_configuration,
        (kubelet_config.KubeletConfigError,),
    ),
    Door("checkpoints", "the kubelet's checkpoint files", _of(_CHECKPOINTS), _read_checkpoints),
    Door(
        "podresources",
        "answers of podresources, at the exporter",
        _make_listing,
        _read_listing,
        (DecodeError, ValueError),
    ),
    Door(
        "topology",
        "NodeResourceTopology objects",
        _of(_TOPOLOGIES),
        _read_topology,
        (nrt.NrtError,),
    ),
    Door("simulator-http", "requests to the simulated API server", _make_request, _request),
)

DOORS = {door.name: door for door in (*_ALL, *node_doors.DOORS)}
