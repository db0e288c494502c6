"""Options that users of resource-topology-exporter and NFD rely on: once, without publishing, a
status file, a folder for a socket, one namespace, and the configuration that a kubelet itself says
it has.
"""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from services.exporter import configz, core
from services.exporter.answers import Allocatable, ListedContainer
from services.exporter.configz import Endpoint
from services.exporter.kubelet_config import KubeletConfigError
from services.exporter.scan import NodeReader
from services.exporter.service import Exporter
from services.exporter.settings import ExporterSettings
from services.exporter.source_recording import RecordedSource
from shared.bus import subjects
from shared.bus.memory import MemoryBus
from shared.domain.report import Report
from tests.exporter.kubelets import Kubelet, write_sysfs
from tests.exporter.test_core import EVEN_ODD, pod, report
from tests.exporter.test_service import eventually, exporting, kubelet, node  # noqa: F401

EXCLUSIVE = ListedContainer("c", (2,))


def test_one_namespace_is_accounted_and_all_of_them_fingerprinted() -> None:
    offered = Allocatable(tuple(range(24)))
    pods = [
        pod("p", EXCLUSIVE),
        msgspec.structs.replace(pod("q", ListedContainer("c", (4,))), namespace="blue"),
    ]
    node_report = report(EVEN_ODD, offered, *pods, rules=core.Rules(namespace="blue"))
    every = report(EVEN_ODD, offered, *pods)
    assert [placement.pod for placement in node_report.placements or ()] == ["q"]
    assert node_report.zones[0].resources["cpu"].available == 11_000
    assert node_report.fingerprint == every.fingerprint


def test_without_fingerprints_there_is_none() -> None:
    node_report = report(EVEN_ODD, Allocatable((2,)), pod("p", EXCLUSIVE), rules=core.Rules(""))
    assert (node_report.fingerprint, node_report.fingerprint_method) == ("", "")


async def test_once_reports_each_node_and_returns_the_problems(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    nodes = (node("n1", kubelet), f"dead={tmp_path / 'none.sock'},{tmp_path / 'sys'}")
    bus = MemoryBus()
    exporter = Exporter(bus, ExporterSettings(nodes=nodes))
    problems = await exporter.once()
    await exporter.close()
    assert len(problems) == 1
    assert "none.sock" in problems[0]
    heard = [message.subject for message in await anext(aiter(bus.reports()))]
    assert heard == [subjects.report("n1")]


async def test_no_publish_publishes_nothing(kubelet: Kubelet) -> None:  # noqa: F811, RUF100
    async with exporting(
        MemoryBus(), nodes=(node("n1", kubelet),), no_publish=True, interval_s=0.1
    ) as (exporter, recorder):
        await eventually(lambda: exporter.reporters["n1"].status.scans >= 3)
    assert recorder.reports == {}


async def test_the_status_file_names_the_pods_of_the_fingerprint(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    kubelet.pods = {"p": [1], "idle": []}
    path = tmp_path / "status.json"
    async with exporting(
        MemoryBus(), nodes=(node("n1", kubelet),), pods_fingerprint_status_file=str(path)
    ) as (_, recorder):
        await recorder.until(lambda seen: "n1" in seen)
    text = json.loads(path.read_bytes())
    assert text["pods"] == [{"Namespace": "default", "Name": "p"}]
    assert text["nodeName"] == "n1"
    assert text["fingerprintComputed"] == recorder.reports["n1"][0].fingerprint
    assert not list(tmp_path.glob("__*"))


async def test_a_folder_of_answers_replaces_a_socket(recordings: Path, tmp_path: Path) -> None:
    settings = ExporterSettings(
        node_name="n1", podresources_socket=f"fake://{recordings / '01-one-guaranteed'}"
    )
    spec = settings.specs()[0]
    reader = NodeReader(spec, settings, RecordedSource(Path(spec.socket.removeprefix("fake://"))))
    made: Report = core.report("n1", "test", await reader.scan(), core.Rules())
    assert [placement.pod for placement in made.placements or ()] == ["g2"]


async def test_a_scan_is_as_old_as_the_first_of_its_reads(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change between two reads of one scan must still cause another report."""
    moments = iter(range(1, 9))
    monkeypatch.setattr("services.exporter.scan.folders.boot_time_ms", lambda: next(moments))

    class Slow(RecordedSource):
        async def allocatable(self) -> Allocatable:
            assert next(moments) == 2
            return await super().allocatable()

    settings = ExporterSettings(
        node_name="n1", podresources_socket=f"fake://{recordings / '01-one-guaranteed'}"
    )
    spec = settings.specs()[0]
    scan = await NodeReader(spec, settings, Slow(Path(spec.socket.removeprefix("fake://")))).scan()
    assert scan.freshness.boot_time_ms == 1
    assert next(moments) == 3


# -- configz
# --------------------------------------------------------------------------------------------------


class _Kubelet(http.server.BaseHTTPRequestHandler):
    answers: dict[str, tuple[int, bytes]] = {}

    def do_GET(self) -> None:
        status, body = self.answers.get(
            self.headers.get("Authorization", ""), (401, b"Unauthorized")
        )
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    """Yield a kubelet's HTTPS port on loopback with its certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=kubelet",
    ]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, "-keyout", key, "-out", cert, *names], check=True, capture_output=True)
    (tmp_path / "token").write_text("secret\n")
    config = {
        "kind": "KubeletConfiguration",
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
    }
    _Kubelet.answers = {"Bearer secret": (200, json.dumps({"kubeletconfig": config}).encode())}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Kubelet)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Endpoint(
        f"https://127.0.0.1:{server.server_address[1]}/configz", str(cert), str(tmp_path / "token")
    )
    server.shutdown()
    server.server_close()


def reader_of(endpoint: Endpoint, tmp_path: Path, **given: float) -> NodeReader:
    (tmp_path / "socket").touch()
    settings = ExporterSettings(
        node_name="n1",
        podresources_socket=str(tmp_path / "socket"),
        kubelet_config_uri=endpoint.uri,
        kubelet_ca_file=endpoint.ca_file,
        kubelet_token_file=endpoint.token_file,
        topology_manager_scope="pod",
        **given,  # type: ignore[arg-type]
    )
    spec = msgspec.structs.replace(settings.specs()[0], sysfs=str(write_sysfs(tmp_path / "sys")))
    (tmp_path / "list.json").write_text("{}")
    (tmp_path / "allocatable.json").write_text("{}")
    return NodeReader(spec, settings, RecordedSource(tmp_path))


async def test_a_kubelet_is_asked_for_its_configuration_and_flags_go_over_it(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    reader = reader_of(endpoint, tmp_path, machine_interval_s=0.0)
    scan = await reader.scan()
    assert (scan.kubelet.policy, scan.kubelet.scope, scan.kubelet.cpu_policy) == (
        "restricted",
        "pod",
        "static",
    )
    _Kubelet.answers = {}
    assert (await reader.scan()).kubelet == scan.kubelet, (
        "what it once said stands while it does not answer"
    )


@pytest.mark.parametrize("late", [False, True])
async def test_a_restarted_kubelet_is_asked_again(
    endpoint: Endpoint, tmp_path: Path, late: bool
) -> None:
    """The restarted kubelet may have another policy, and answers shortly after its socket
    exists.
    """
    reader = reader_of(endpoint, tmp_path, machine_interval_s=3600.0, interval_s=0.0)
    assert (await reader.scan()).kubelet.policy == "restricted"
    config = {"kind": "KubeletConfiguration", "topologyManagerPolicy": "single-numa-node"}
    answer = {"Bearer secret": (200, json.dumps({"kubeletconfig": config}).encode())}
    _Kubelet.answers = answer
    assert (await reader.scan()).kubelet.policy == "restricted", (
        "the same kubelet is not asked again"
    )
    (tmp_path / "anew").touch()
    (tmp_path / "anew").replace(tmp_path / "socket")
    if late:
        _Kubelet.answers = {}
        assert (await reader.scan()).kubelet.policy == "restricted"
        _Kubelet.answers = answer
    assert (await reader.scan()).kubelet.policy == "single-numa-node"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"ca_file": ""}, "certificate verify failed"),
        ({"token_file": ""}, "401; the token needs get on nodes/configz"),
        ({"uri": "https://127.0.0.1:1/configz"}, "check --kubelet-config-uri"),
    ],
)
def test_an_untrusted_or_unreachable_kubelet_is_an_error_with_a_remedy(
    endpoint: Endpoint, change: dict[str, str], named: str
) -> None:
    with pytest.raises(KubeletConfigError, match=named):
        configz.fetch(msgspec.structs.replace(endpoint, **change))


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"kubeletconfig"'])
def test_an_invalid_configz_answer_is_rejected(endpoint: Endpoint, body: bytes) -> None:
    _Kubelet.answers = {"Bearer secret": (200, body)}
    with pytest.raises(KubeletConfigError, match="check that this is a kubelet's /configz"):
        configz.fetch(endpoint)
