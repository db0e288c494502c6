"""How nodes of an outside cluster come to report here: address, credentials, a DaemonSet filled in,
one `kubectl apply` away.

The manifest is `k8s/base/exporter.yaml` with what it leaves open: namespace, account, a secret with
the bus' address, image; and, for the bus of this run, `k8s/components/exporter-identities` with a
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
    """This machine's address as the cluster's nodes may reach it: the local end of a route to the
    API server, or, where that is on loopback (kind), of the route to anywhere. Nothing is sent.
    127.0.0.1 when there is no route."""
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
    """The embedded bus as pods of another machine need it: on every interface, by TLS as `address`,
    with a key for each exporter (`credentials` is their folder). The monitoring page stays on
    loopback."""
    return NatsSettings(
        host="0.0.0.0", monitor_host="127.0.0.1", credentials=str(credentials), tls_names=(address,)
    )


def exporter_url(nats_url: str, address: str) -> str:
    """The URL of this run's bus as an exporter in a pod must use it: by TLS, with the key of its
    node.
    """
    host = f"[{address}]" if ":" in address else address
    return f"tls://{host}:{urlsplit(nats_url).port or 4222}?ca={CA_IN_PODS}&seed={SEED_IN_PODS}"


def authority(nats_url: str) -> str:
    """The text of the authority's certificate that the embedded bus' URL names; empty for an
    outside bus, whose user knows it.
    """
    file = parse_qs(urlsplit(nats_url).query).get("ca", [""])[0]
    return Path(file).read_text() if file else ""


def manifest(
    nats_url: str, ca: str = "", seeds: Mapping[str, str] = NO_SEEDS, image: str = IMAGE
) -> str:
    """Namespace, account, secrets and DaemonSet as YAML; `ca` is the text of the bus' authority,
    `seeds` are the nodes' keys.
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
    return yaml.safe_dump_all(documents, sort_keys=False)


def _identify(daemon_set: dict[str, Any]) -> None:
    """What the component adds to the DaemonSet: its patches only append to lists."""
    (patch,) = yaml.safe_load(_IDENTITIES.read_text())["patches"]
    for operation in yaml.safe_load(patch["patch"]):
        at: Any = daemon_set
        for part in operation["path"].split("/")[1:-1]:
            at = at[int(part)] if part.isdigit() else at[part]
        at.append(operation["value"])


def _secret(name: str, texts: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "stringData": texts,
    }


def write(folder: Path, nats_url: str, ca: str = "", seeds: Mapping[str, str] = NO_SEEDS) -> Path:
    """Write the manifest, which holds what the bus asks exporters for, for the user's eyes only."""
    path = folder / FILE
    files.write(path, manifest(nats_url, ca, seeds).encode(), 0o600)
    return path


def words(path: Path, url: str, keys: bool = True) -> list[str]:
    """What to type, and what must be so."""
    parts = urlsplit(url)
    reach = f"{parts.hostname}:{parts.port}"
    by_key = [
        f"   (each exporter reports to {reach} by the key of its node, which is in the file; for nodes that join later",
        "   start topolog up again, and apply the file again)",
    ]
    lines = [
        f"1. the image on the nodes: docker build -t {IMAGE} . && kind load docker-image {IMAGE}",
        f"   (minikube image load {IMAGE}; k3s: docker save {IMAGE} | k3s ctr images import -)",
        f"2. attach the nodes: kubectl apply -f {path}",
        *(
            by_key
            if keys
            else [
                f"   (exporters report to {reach} as TOPOLOG_NATS_URL says, which is in the file)"
            ]
        ),
        "3. submit pods with spec.schedulerName: topolog; topolog replay explain NAME tells why one waits",
        f"afterwards: kubectl delete -f {path}",
    ]
    if str(parts.hostname).startswith("127."):
        lines.append(
            "no address of this machine is known that nodes could reach: start again with --advertise ADDRESS"
        )
    return lines
