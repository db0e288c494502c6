"""TLS of a service's HTTP port, on a real process: which clients are answered, by which
versions, and the effect of a rotation.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.embedded.certificates import Certificates, client, ensure
from shared.runtime.app import Exit
from shared.runtime.http_tls import CIPHERS
from tests.runtime.test_app import Running, running, spawn

NAMES = ("127.0.0.1", "0.0.0.0", "localhost")


@pytest.fixture
def files(tmp_path: Path) -> Certificates:
    return ensure(tmp_path / "own", NAMES, ["prometheus"])


def settings(files: Certificates, clients: bool = False, **more: str) -> dict[str, str]:
    given = {"http_tls_certificate": str(files.certificate), "http_tls_key": str(files.key)}
    return {**given, **({"http_tls_client_ca": str(files.ca)} if clients else {}), **more}


@contextmanager
def serving(files: Certificates, clients: bool = False, **more: str) -> Iterator[Running]:
    with running(**settings(files, clients, **more)) as service:
        yield service


def trusting(files: Certificates, shown: Certificates | None = None) -> ssl.SSLContext:
    """Return a TLS context that trusts the authority of `files`, with a client certificate if one
    is given.
    """
    context = ssl.create_default_context(cafile=str(files.ca))
    if shown is not None:
        context.load_cert_chain(str(shown.certificate), str(shown.key))
    return context


def ask(service: Running, path: str, context: ssl.SSLContext) -> int:
    try:
        with urllib.request.urlopen(
            service.started["url"] + path, timeout=60, context=context
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def prometheus(files: Certificates) -> Certificates:
    return client(files.ca.parent, "prometheus")


def replaced(files: Certificates, author: Certificates) -> None:
    """Replace the files by renaming, as the volume of a secret does."""
    for old, new in zip(
        (files.ca, files.certificate, files.key),
        (author.ca, author.certificate, author.key),
        strict=True,
    ):
        copy = old.with_suffix(".new")
        shutil.copy(new, copy)
        os.replace(copy, old)


def test_with_a_certificate_the_port_speaks_tls_alone(files: Certificates) -> None:
    with serving(files) as service:
        assert service.started["url"].startswith("https://")
        assert [
            ask(service, path, trusting(files))
            for path in ("/livez", "/readyz", "/metrics", "/hello")
        ] == [200] * 4
        plain = service.started["url"].replace("https", "http")
        with pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(plain + "/livez", timeout=60)
        code, _, _ = service.stop()
    assert code == Exit.CLEAN


def test_with_client_certificates_other_clients_see_health_only(
    files: Certificates,
) -> None:
    with serving(files, clients=True) as service:
        assert [
            ask(service, path, trusting(files)) for path in ("/livez", "/healthz", "/readyz")
        ] == [200] * 3
        assert [ask(service, path, trusting(files)) for path in ("/metrics", "/hello")] == [403] * 2
        assert [
            ask(service, path, trusting(files, prometheus(files)))
            for path in ("/metrics", "/hello")
        ] == [200] * 2


def test_a_certificate_of_another_authority_is_none(files: Certificates, tmp_path: Path) -> None:
    stranger = client(ensure(tmp_path / "other", NAMES, ["prometheus"]).ca.parent, "prometheus")
    with serving(files, clients=True) as service, pytest.raises((OSError, urllib.error.URLError)):
        ask(service, "/livez", trusting(files, stranger))


def test_a_token_is_asked_for_besides(files: Certificates) -> None:
    with serving(files, clients=True, http_token="s3cret") as service:
        assert ask(service, "/metrics", trusting(files, prometheus(files))) == 401


def test_new_files_count_from_the_next_connection_on_and_the_old_authority_no_more(
    files: Certificates, tmp_path: Path
) -> None:
    second = ensure(tmp_path / "other", NAMES, ["prometheus"])
    earlier = ensure(tmp_path / "before", NAMES)
    shutil.copy(files.ca, earlier.ca)
    with serving(files, clients=True) as service:
        old = prometheus(files)
        assert ask(service, "/metrics", trusting(earlier, old)) == 200
        replaced(files, second)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(service, "/livez", trusting(earlier))
        assert ask(service, "/metrics", trusting(second, prometheus(second))) == 200
        with pytest.raises((OSError, urllib.error.URLError)):
            ask(service, "/livez", trusting(second, old))


def test_half_a_rotation_leaves_the_old_certificate_and_says_so(
    files: Certificates, tmp_path: Path
) -> None:
    second = ensure(tmp_path / "other", NAMES)
    with serving(files) as service:
        shutil.copy(second.certificate, files.certificate)
        assert ask(service, "/livez", trusting(files)) == 200
        _, _, err = service.stop()
    line = next(json.loads(line) for line in err.splitlines() if "http.certificate" in line)
    assert str(files.key) in line["problem"]


@pytest.mark.parametrize(
    ("least", "ciphers", "spoken"),
    [("1.2", "", "TLSv1.2"), ("1.3", "", ""), ("1.2", "TLS_AES_128_GCM_SHA256", "")],
)
def test_older_versions_than_the_least_are_refused(
    files: Certificates, least: str, ciphers: str, spoken: str
) -> None:
    context = trusting(files)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(files, http_tls_min_version=least, http_tls_ciphers=ciphers) as service:
        host, port = service.started["url"].removeprefix("https://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            if not spoken:
                with pytest.raises(ssl.SSLError):
                    context.wrap_socket(connection, server_hostname=host)
                return
            with context.wrap_socket(connection, server_hostname=host) as secured:
                assert secured.version() == spoken


def test_only_the_ciphers_that_are_named_are_offered(files: Certificates) -> None:
    chosen = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    context = trusting(files)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(files, http_tls_ciphers=chosen) as service:
        host, port = service.started["url"].removeprefix("https://").split(":")
        with (
            socket.create_connection((host, int(port)), timeout=60) as connection,
            context.wrap_socket(connection, server_hostname=host) as secured,
        ):
            used = secured.cipher()
            assert used is not None
            assert used[0] == CIPHERS[chosen]


@pytest.mark.parametrize(
    ("wrong", "received"),
    [
        ({"http_tls_certificate": "/nowhere/tls.crt"}, "/nowhere/tls.crt"),
        ({"http_tls_key": ""}, "TOPOLOG_HTTP_TLS_KEY"),
        ({"http_tls_client_ca": "/nowhere/ca.crt"}, "/nowhere/ca.crt"),
        ({"http_tls_ciphers": "TLS_RSA_WITH_RC4_128_SHA"}, "TLS_RSA_WITH_RC4_128_SHA"),
        ({"http_tls_min_version": "1.1"}, "TOPOLOG_HTTP_TLS_MIN_VERSION"),
    ],
)
def test_settings_that_cannot_be_served_are_reported_before_serving(
    files: Certificates, wrong: dict[str, str], received: str
) -> None:
    process = spawn(**{**settings(files), **wrong})
    _, err = process.communicate(timeout=60)
    assert process.returncode == Exit.SETTINGS
    assert received in err
    assert "Traceback" not in err


def test_client_certificates_without_tls_are_no_setting(files: Certificates) -> None:
    process = spawn(http_tls_client_ca=str(files.ca))
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "TOPOLOG_HTTP_TLS_CERTIFICATE" in err) == (Exit.SETTINGS, True)


def test_with_client_certificates_the_port_counts_as_closed_in_production(
    files: Certificates,
) -> None:
    with serving(files, clients=True, http_host="0.0.0.0", production="true") as service:
        assert ask(service, "/hello", trusting(files)) == 403


def test_a_handshake_that_never_ends_delays_no_answer_and_is_ended(
    files: Certificates,
) -> None:
    with serving(files) as service:
        host, port = service.started["url"].removeprefix("https://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"\x16\x03\x01\x02")
            assert ask(service, "/livez", trusting(files)) == 200
            while connection.recv(4096):
                pass
