"""`topolog up --kubeconfig`: how exporters of an outside cluster come to report here."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from services.embedded.data_dir import DataDir
from services.embedded.servers import EmbeddedServers
from services.embedded.up import attach, children, exporter_keys
from services.embedded.up.options import UpOptions
from services.embedded.up.outside import nodes_of
from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.serve import start
from services.simulator.api.settings import ApiSettings
from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from shared.bus.port import BusUnavailable
from shared.kube.client import KubeClient
from shared.kube.port import Answer
from tests.deploy.manifests import secrets_of


def test_the_manifest_is_complete_and_names_the_bus_and_the_image(tmp_path: Path) -> None:
    path = attach.write(
        tmp_path,
        "tls://exporter:s3cret@192.0.2.7:4222?ca=/etc/topolog/nats/ca.crt",
        "the authority",
    )
    assert path.stat().st_mode & 0o077 == 0
    read = list(yaml.safe_load_all(path.read_text()))
    documents = {entry["kind"]: entry for entry in read}
    secrets = {
        entry["metadata"]["name"]: entry["stringData"]
        for entry in read
        if entry["kind"] == "Secret"
    }
    assert set(documents) >= {"Namespace", "ServiceAccount", "Secret", "DaemonSet"}
    assert secrets["topolog-nats"] == {
        "exporter-url": "tls://exporter:s3cret@192.0.2.7:4222?ca=/etc/topolog/nats/ca.crt"
    }
    assert secrets["topolog-nats-tls"] == {"ca.crt": "the authority"}
    assert len(secrets["topolog-http"]["token"]) > 20
    container = documents["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == attach.IMAGE
    used = {(name, key) for name, key, _optional in secrets_of(documents["DaemonSet"])}
    assert all(key in secrets[name] for name, key in used)
    assert ("topolog-nats", "exporter-url") in used
    (ca,) = [mount for mount in container["volumeMounts"] if mount["name"] == "nats-ca"]
    assert f"{ca['mountPath']}/ca.crt" == attach.CA_IN_PODS
    assert {
        entry["metadata"].get("namespace", attach.NAMESPACE) for entry in documents.values()
    } == {attach.NAMESPACE}


def test_pods_can_reach_the_address() -> None:
    for address, host in (("192.0.2.7", "192.0.2.7"), ("fd00::7", "[fd00::7]")):
        printed = attach.exporter_url("tls://topolog:all@127.0.0.1:4223?ca=/own/ca.crt", address)
        assert printed == f"tls://{host}:4223?ca={attach.CA_IN_PODS}&seed={attach.SEED_IN_PODS}"


def test_each_node_finds_its_own_seed_where_the_url_names_it(tmp_path: Path) -> None:
    url = attach.exporter_url("tls://topolog:all@127.0.0.1:4223", "192.0.2.7")
    read = list(
        yaml.safe_load_all(
            attach.write(tmp_path, url, "the authority", {"n1": "SEED1", "n2": "SEED2"}).read_text()
        )
    )
    secrets = {
        entry["metadata"]["name"]: entry["stringData"]
        for entry in read
        if entry["kind"] == "Secret"
    }
    assert secrets["topolog-nats-exporters"] == {"n1.nk": "SEED1", "n2.nk": "SEED2"}
    pod = next(entry for entry in read if entry["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    (mount,) = [
        mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "nats-seed"
    ]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "nats-seed"]
    assert (mount["mountPath"], mount["subPathExpr"]) == (attach.SEED_IN_PODS, "$(NODE_NAME).nk")
    assert volume["secret"]["secretName"] == "topolog-nats-exporters"


async def test_nodes_of_an_outside_cluster_speak_for_themselves_alone_on_the_bus_of_the_run(
    tmp_path: Path,
) -> None:
    """As `topolog up --kubeconfig` composes it: a simulated cluster's nodes, the real NATS on every
    interface by TLS.
    """
    cluster = await start(ClusterStore(ApiSettings()))
    for name in ("n1", "n2"):
        await _made(cluster.url, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    with DataDir(tmp_path / "data") as folder:
        settings = attach.bus(exporter_keys.credentials(folder), "127.0.0.1")
        async with EmbeddedServers(folder, want_postgres=False, nats_settings=settings) as servers:
            expected = JetStreamBus(servers.nats_url)
            await expected.ensure_streams()
            seeds = await exporter_keys.seeds(servers, folder, await nodes_of(cluster.url))
            assert sorted(seeds) == ["n1", "n2"]
            (tmp_path / "n1.nk").write_text(seeds["n1"])
            address = urlsplit(servers.nats_url)
            ca = parse_qs(address.query)["ca"][0]
            exporter = JetStreamBus(
                f"tls://127.0.0.1:{address.port}?ca={ca}&seed={tmp_path / 'n1.nk'}",
                keeps_streams=False,
            )
            await exporter.publish(subjects.report("n1"), b"{}", {})
            with pytest.raises(BusUnavailable):
                await exporter.publish(subjects.report("n2"), b"{}", {})
            await exporter.close()
            await expected.close()
    await cluster.stop()


async def _made(server: str, document: dict[str, object]) -> None:
    kube = KubeClient(server)
    assert isinstance(await kube._call("POST", "/api/v1/nodes", body=document), Answer)
    await kube.close()


def test_without_a_route_there_is_a_remedy(tmp_path: Path) -> None:
    lines = attach.words(
        tmp_path / "exporter.yaml", "nats://exporter:pw@127.0.0.1:4222", keys=False
    )
    assert any("--advertise" in line for line in lines)
    assert any(f"kubectl apply -f {tmp_path / 'exporter.yaml'}" in line for line in lines)
    assert not any("pw" in line for line in lines)


def test_exporters_of_an_outside_cluster_expire_by_their_own_interval() -> None:
    """They report every 10 s, whatever interval the simulated nodes of a run have."""

    def printed(options: UpOptions) -> str | None:
        return children.environment(options, "", "", "", Path("/trace")).get(
            "TOPOLOG_REPORT_MAX_AGE_S"
        )

    assert printed(UpOptions(data_dir=Path("data"), kubeconfig="/admin.conf")) is None
    assert printed(UpOptions(data_dir=Path("data"), report_interval_s=5.0)) == "15.0"
