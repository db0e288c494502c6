"""`topolog up --kubeconfig`: how exporters of an outside cluster come to report here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from services.embedded.nats import NatsAddress, render_config
from services.embedded.up import attach


def test_the_manifest_is_complete_and_names_the_bus_and_the_image(tmp_path: Path) -> None:
    path = attach.write(tmp_path, "tls://exporter:s3cret@192.0.2.7:4222?ca=/etc/topolog/nats/ca.crt", "the authority")
    assert path.stat().st_mode & 0o077 == 0
    read = list(yaml.safe_load_all(path.read_text()))
    documents = {one["kind"]: one for one in read}
    secrets = {one["metadata"]["name"]: one["stringData"] for one in read if one["kind"] == "Secret"}
    assert set(documents) >= {"Namespace", "ServiceAccount", "Secret", "DaemonSet"}
    assert secrets["topolog-nats"] == {"exporter-url": "tls://exporter:s3cret@192.0.2.7:4222?ca=/etc/topolog/nats/ca.crt"}
    assert secrets["topolog-nats-tls"] == {"ca.crt": "the authority"}
    assert len(secrets["topolog-http"]["token"]) > 20
    container = documents["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == attach.IMAGE
    used = [entry["valueFrom"]["secretKeyRef"] for entry in container["env"] if "secretKeyRef" in entry.get("valueFrom", {})]
    assert all(one["key"] in secrets[one["name"]] for one in used)
    assert {"name": "topolog-nats", "key": "exporter-url"} in used
    (ca,) = [mount for mount in container["volumeMounts"] if mount["name"] == "nats-ca"]
    assert f"{ca['mountPath']}/ca.crt" == attach.CA_IN_PODS
    assert {one["metadata"].get("namespace", attach.NAMESPACE) for one in documents.values()} == {attach.NAMESPACE}


def test_the_bus_lets_exporters_publish_reports_only_and_keeps_its_password(tmp_path: Path) -> None:
    settings = attach.bus(tmp_path, "192.0.2.7")
    assert attach.bus(tmp_path, "192.0.2.7") == settings
    assert settings.tls_names == ("192.0.2.7",)
    assert (tmp_path / "exporter-password").stat().st_mode & 0o077 == 0
    config = json.loads(render_config(NatsAddress(4222, 8222, "all"), tmp_path, settings))
    assert (config["host"], config["http"]) == ("0.0.0.0", "127.0.0.1:8222")
    exporter = config["authorization"]["users"][1]
    assert exporter["user"] == "exporter"
    assert all("$JS.API.STREAM.INFO" in subject or "report" in subject for subject in exporter["permissions"]["publish"])


@pytest.mark.parametrize(
    ("url", "address", "password", "told"),
    [
        ("nats://topolog:all@127.0.0.1:4223", "192.0.2.7", "pw", f"tls://exporter:pw@192.0.2.7:4223?ca={attach.CA_IN_PODS}"),
        ("nats://topolog:all@127.0.0.1:4223", "fd00::7", "pw", f"tls://exporter:pw@[fd00::7]:4223?ca={attach.CA_IN_PODS}"),
        ("nats://bus.example:4222", "192.0.2.7", "", "nats://bus.example:4222"),
    ],
)
def test_the_address_is_one_that_pods_can_reach(url: str, address: str, password: str, told: str) -> None:
    assert attach.exporter_url(url, address, password) == told


def test_without_a_route_the_remedy_is_told(tmp_path: Path) -> None:
    lines = attach.words(tmp_path / "exporter.yaml", "nats://exporter:pw@127.0.0.1:4222")
    assert any("--advertise" in line for line in lines)
    assert any(f"kubectl apply -f {tmp_path / 'exporter.yaml'}" in line for line in lines)
    assert not any("pw" in line for line in lines)
