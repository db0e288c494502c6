"""Certificates as authorities of many clusters make them, without key identifiers and key usage,
and Python 3.13's default for contexts, which refuses those."""

from __future__ import annotations

import ast
import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.embedded.certificates import Certificates
from shared.bus import jetstream_tls
from shared.kube.port import Answer
from tests.kube.test_certificates import serving, trusting
from tests.kube.test_transport import OK

ROOT = Path(__file__).resolve().parents[2]
# This file connects to a local server without a check of its certificate.
OWN = {Path("services/embedded/logins.py")}


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make contexts as strict as Python 3.13 makes them."""
    make = ssl.create_default_context

    def made(*given: Any, **named: Any) -> ssl.SSLContext:
        context = make(*given, **named)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", made)


@pytest.fixture
def bare(tmp_path: Path) -> Certificates:
    """Yield a server on loopback whose certificate has a name and no address, as on EKS."""
    authority, certificate = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    ca = _begun("kubernetes", authority.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    server = _begun("server", certificate.public_key()).add_extension(address, critical=False)
    files = Certificates(tmp_path / "ca.crt", tmp_path / "tls.crt", tmp_path / "tls.key")
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    files.ca.write_bytes(ca.sign(authority, hashes.SHA256()).public_bytes(pem))
    files.certificate.write_bytes(server.sign(authority, hashes.SHA256()).public_bytes(pem))
    files.key.write_bytes(certificate.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return files


def _begun(name: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    subject, issuer = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        for common_name in (name, "kubernetes")
    )
    today, built = (
        datetime.now(UTC),
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key),
    )
    built = built.not_valid_before(today - timedelta(hours=1)).not_valid_after(
        today + timedelta(days=1)
    )
    return built.serial_number(x509.random_serial_number())


@pytest.mark.usefixtures("strict")
async def test_an_api_server_with_a_bare_authority_is_asked(
    tmp_path: Path, bare: Certificates
) -> None:
    async with serving(bare) as server, trusting(tmp_path, server) as kube:
        server.answers = [OK]
        assert isinstance(await kube.get_pod("ns", "p"), Answer)


@pytest.mark.usefixtures("strict")
async def test_nats_with_a_bare_authority_is_believed(bare: Certificates) -> None:
    async with serving(bare) as server:
        port = int(server.url.rpartition(":")[2])
        context = jetstream_tls.context(f"tls://127.0.0.1:{port}?ca={bare.ca}")
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.close()


def test_each_tls_context_for_a_server_chooses_its_checks() -> None:
    bare_calls = [(path, line) for path, line in _contexts() if path not in OWN]
    assert bare_calls == [], "wrap it: shared.tls.as_go_checks"


def _contexts() -> Iterator[tuple[Path, int]]:
    """Return the calls that make a client's context without the wrapper."""
    for path in sorted([*ROOT.glob("services/**/*.py"), *ROOT.glob("shared/**/*.py")]):
        calls = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        ]
        wrapped = {id(call.args[0]) for call in calls if ast.unparse(call.func) == "as_go_checks"}
        for call in calls:
            if (
                ast.unparse(call.func).endswith(("create_default_context", "verify_cluster"))
                and id(call) not in wrapped
            ):
                yield path.relative_to(ROOT), call.lineno
