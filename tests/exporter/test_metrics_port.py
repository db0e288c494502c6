"""resource-topology-exporter's options of the metrics port: what flags and its folder make of TLS,
and what a process serves.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.embedded.certificates import client, ensure
from services.exporter.precedence import dump, gathered
from services.exporter.settings import ExporterSettings
from shared.runtime.settings import HttpTls, load

NODE = {"NODE_NAME": "n1"}


def settings(*argv: str) -> ExporterSettings:
    return load(ExporterSettings, gathered(argv, NODE).environment)


def test_clear_text_is_the_default_and_the_folder_of_certificates_is_rtes() -> None:
    assert settings().tls() == HttpTls()
    made = settings("--metrics-mode=httptls").tls()
    assert (made.certificate, made.key, made.client_ca) == (
        "/etc/secrets/rte/tls.crt",
        "/etc/secrets/rte/tls.key",
        "",
    )


def test_flags_of_the_metrics_port_have_their_counterparts() -> None:
    exporter_settings = settings(
        "--metrics-mode=HttpTLS",
        "--metrics-certs-dir=/c",
        "--metrics-cert-file=a.crt",
        "--metrics-key-file=a.key",
        "--metrics-want-cli-auth",
        "--metrics-tls-min-version=VersionTLS13",
        "--metrics-ip=127.0.0.2",
        "--metrics-port=2112",
        "--metrics-tls-cipher-suites=TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    )
    ciphers = ("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256")
    assert exporter_settings.tls() == HttpTls("/c/a.crt", "/c/a.key", "/c/ca.crt", "1.3", ciphers)
    assert (exporter_settings.http_host, exporter_settings.http_port) == ("127.0.0.2", 2112)
    assert (
        settings("--metrics-mode=httptls", "--metrics-client-ca=/other.crt").tls().client_ca
        == "/other.crt"
    )


def test_rtes_folder_sets_the_same_with_its_origin(tmp_path: Path) -> None:
    (tmp_path / "daemon").mkdir()
    tls = {
        "certsDir": "/c",
        "wantCliAuth": True,
        "minTLSVersion": "VersionTLS13",
        "cipherSuites": "TLS_AES_128_GCM_SHA256",
    }
    (tmp_path / "daemon" / "config.yaml").write_text(
        json.dumps({"topologyExporter": {"metricsMode": "httptls", "metricsTLS": tls}})
    )
    result = gathered(["--config-root", str(tmp_path)], NODE)
    made = load(ExporterSettings, result.environment).tls()
    assert made == HttpTls(
        "/c/tls.crt", "/c/tls.key", "/c/ca.crt", "1.3", ("TLS_AES_128_GCM_SHA256",)
    )
    lines = {line.setting: line for line in dump(result)}
    assert lines["http_tls_min_version"].origin.endswith(
        "daemon/config.yaml: topologyExporter.metricsTLS.minTLSVersion"
    )
    assert lines["http_tls_key"].origin == "default"
    assert result.left_out == ()


def test_in_clear_text_versions_and_ciphers_say_nothing() -> None:
    assert (
        settings("--metrics-mode=http", "--metrics-tls-min-version=VersionTLS13").tls() == HttpTls()
    )


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--metrics-tls-min-version=VersionTLS10", "write VersionTLS12 or VersionTLS13"),
        ("--metrics-mode=https", "choose from"),
        ("--metrics-want-cli-auth", "add --metrics-mode=httptls"),
        ("--podreadiness", "REFERENCE_POD_NAME"),
    ],
)
def test_invalid_options_are_named(flag: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "services.exporter", "--node=n1=/s", flag],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert message in done.stderr


@contextmanager
def exporting(tmp_path: Path, *flags: str) -> Iterator[str]:
    """Yield the address of a started exporter without kubelet and bus."""
    argv = [
        sys.executable,
        "-m",
        "services.exporter",
        f"--node=n1={tmp_path}/none.sock",
        "--nats-url=nats://127.0.0.1:9",
        *flags,
    ]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line: dict[str, str] = {}
        while line.get("event") != "service.started":
            line = json.loads(process.stderr.readline())
        yield line["url"]
    finally:
        process.kill()
        process.communicate()


def status(url: str, context: ssl.SSLContext | None = None) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def test_a_disabled_mode_serves_health_and_no_metrics(tmp_path: Path) -> None:
    with exporting(tmp_path, "--metrics-mode=disabled") as url:
        assert (status(f"{url}/livez"), status(f"{url}/metrics")) == (200, 404)


def test_metrics_need_a_client_certificate_if_configured(tmp_path: Path) -> None:
    files = ensure(tmp_path / "certs", ["127.0.0.1"], ["prometheus"])
    extra = client(files.ca.parent, "prometheus")
    flags = (
        "--metrics-mode=httptls",
        f"--metrics-certs-dir={files.ca.parent}",
        "--metrics-want-cli-auth=true",
    )
    with exporting(tmp_path, *flags) as url:
        context = ssl.create_default_context(cafile=str(files.ca))
        assert (status(f"{url}/livez", context), status(f"{url}/metrics", context)) == (200, 403)
        context.load_cert_chain(str(extra.certificate), str(extra.key))
        assert status(f"{url}/metrics", context) == 200
