"""The exporter manifest for an outside cluster, whose nodes report to the bus of `topolog up`.

It is `k8s/base/exporter.yaml` with the open parts filled in: namespace, account, a secret with the
bus' address, image. For the bus of this run it includes `k8s/components/exporter-identities` with a
key for each node. Values in, text out.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from services.embedded import files
from services.embedded.nats import NatsSettings

NAMESPACE = "topolog"
IMAGE = "topolog:local"
CA_IN_PODS = "/etc/topolog/nats/ca.crt"
SEED_IN_PODS = "/etc/topolog/exporter/seed.nk"
FILE = "exporter.yaml"
NO_SEEDS: Mapping[str, str] = MappingProxyType({})
_ANYWHERE = "192.0.2.1"
_K8S = Path(__file__).resolve().parents[3] / "k8s"
_BASE = _K8S / "base" / "exporter.yaml"
_IDENTITIES = _K8S / "components" / "exporter-identities" / "kustomization.yaml"


def own_address(api_server: str) -> str:
    """Return this machine's address as the cluster's nodes may reach it: the local end of a route
    to the API server, or to any address if that is on loopback (kind). Sends nothing. Returns
    127.0.0.1 without a route.
    """
    host = urlsplit(api_server).hostname or _ANYWHERE
    return _local_end(host) if not _local_end(host).startswith("127.") else _local_end(_ANYWHERE)


def _local_end(host: str) -> str:
    try:
        family, *_, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def bus(credentials: Path, address: str) -> NatsSettings:
    """Return the settings of the embedded bus for pods of other machines: on every interface, by
    TLS as `address`, with a key for each exporter (`credentials` is their folder). The monitoring
    page stays on loopback.
    """
    return NatsSettings(
        host="0.0.0.0",
        monitor_host="127.0.0.1",
        credentials=str(credentials),
        tls_names=(address,),
    )


def exporter_url(nats_url: str, address: str) -> str:
    """Return the URL of this run's bus for an exporter in a pod, with TLS and its node's key."""
    host = f"[{address}]" if ":" in address else address
    return f"tls://{host}:{urlsplit(nats_url).port or 4222}?ca={CA_IN_PODS}&seed={SEED_IN_PODS}"


def authority(nats_url: str) -> str:
    """Return the text of the authority's certificate in the embedded bus' URL; "" for an outside
    bus.
    """
    file = parse_qs(urlsplit(nats_url).query).get("ca", [""])[0]
    return Path(file).read_text() if file else ""


def manifest(
    nats_url: str, ca: str = "", seeds: Mapping[str, str] = NO_SEEDS, image: str = IMAGE
) -> str:
    """Return namespace, account, secrets and DaemonSet as YAML; `ca` is the text of the bus'
    authority, `seeds` are the nodes' keys.
    """
    documents: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "exporter", "namespace": NAMESPACE},
        },
        _secret("topolog-nats", {"exporter-url": nats_url}),
        _secret("topolog-http", {"token": secrets.token_urlsafe(24)}),
        *([_secret("topolog-nats-tls", {"ca.crt": ca})] if ca else []),
        *(
            [
                _secret(
                    "topolog-nats-exporters", {f"{node}.nk": seed for node, seed in seeds.items()}
                )
            ]
            if seeds
            else []
        ),
    ]
    for document in yaml.safe_load_all(_BASE.read_text()):
        document["metadata"]["namespace"] = NAMESPACE
        if document["kind"] == "DaemonSet":
            container = document["spec"]["template"]["spec"]["containers"][0]
            container["image"], container["imagePullPolicy"] = image, "IfNotPresent"
            if seeds:
                _identify(document)
        documents.append(document)
    # The dumper in C is ten times as fast, which counts with a key for each of many nodes.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump_all(documents, Dumper=dumper, sort_keys=False))


def _identify(daemon_set: dict[str, Any]) -> None:
    """Apply the patches of the component to the DaemonSet; they only append to lists."""
    (patch,) = yaml.safe_load(_IDENTITIES.read_text())["patches"]
    for operation in yaml.safe_load(patch["patch"]):
        parent: Any = daemon_set
        for part in operation["path"].split("/")[1:-1]:
            parent = parent[int(part)] if part.isdigit() else parent[part]
        parent.append(operation["value"])


def _secret(name: str, texts: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "stringData": texts,
    }


def write(folder: Path, nats_url: str, ca: str = "", seeds: Mapping[str, str] = NO_SEEDS) -> Path:
    """Write the manifest with mode 0600, because it contains the exporters' credentials."""
    path = folder / FILE
    files.write(path, manifest(nats_url, ca, seeds).encode(), 0o600)
    return path


def words(path: Path, url: str, keys: bool = True) -> list[str]:
    """Return the instructions for the user."""
    parts = urlsplit(url)
    reach = f"{parts.hostname}:{parts.port}"
    by_key = [
        f"   (each exporter reports to {reach} with the key of its node, which is in the file;",
        "   if a node joins later, start topolog up and apply the file again)",
    ]
    lines = [
        f"1. the image on the nodes: docker build -t {IMAGE} . && kind load docker-image {IMAGE}",
        f"   (minikube image load {IMAGE}; k3s: docker save {IMAGE} | k3s ctr images import -)",
        f"2. attach the nodes: kubectl apply -f {path}",
        *(
            by_key
            if keys
            else [f"   (exporters report to {reach} with TOPOLOG_NATS_URL, which is in the file)"]
        ),
        "3. submit pods with spec.schedulerName: topolog; topolog replay explain NAME explains one",
        f"to remove it: kubectl delete -f {path}",
    ]
    if str(parts.hostname).startswith("127."):
        lines.append(
            "the nodes cannot reach this machine by a loopback address: "
            "start again with --advertise ADDRESS"
        )
    return lines
