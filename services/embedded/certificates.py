"""Create and keep certificates for the bundled NATS: an authority, a server certificate, and client
certificates on request.

A folder holds `ca.crt`, which clients need, `ca.key`, `tls.crt` and `tls.key`, and `NAME.crt` and
`NAME.key` for each client. The authority is kept. The other certificates are replaced for other
names, and if they expire within a year. Knows nothing of NATS.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from services.embedded.errors import DataFolderError
from services.embedded.files import write

LASTS = timedelta(days=3650)
AUTHORITY_LASTS = 3 * LASTS
RENEWED_BEFORE = timedelta(days=365)
_CLIENT = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,252}")
# Certificates are valid from a little earlier, because clocks of machines differ.
_SKEW = timedelta(hours=1)

Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


class Certificates(msgspec.Struct, frozen=True):
    """PEM files: the authority's certificate, a certificate and its key."""

    ca: Path
    certificate: Path
    key: Path


def ensure(folder: Path, names: Sequence[str], clients: Sequence[str] = ()) -> Certificates:
    """Return the certificates of a server with these names (DNS names and IP addresses), and create
    those of `clients`. Raises DataFolderError.
    """
    files = Certificates(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        today = datetime.now(UTC)
        authority = _read(files.ca, folder / "ca.key") or _keep(
            _authority(today), files.ca, folder / "ca.key"
        )
        server = _read(files.certificate, files.key)
        if server is None or not _serves(server[0], names, authority[0], today):
            _keep(_server(names, authority, today), files.certificate, files.key)
        for name in clients:
            paths = client(folder, name)
            pair = _read(paths.certificate, paths.key)
            if pair is None or not _serves(pair[0], [name], authority[0], today):
                _keep(_client(name, authority, today), paths.certificate, paths.key)
    except (OSError, ValueError, TypeError) as error:
        raise DataFolderError(
            f"the certificates in {folder} cannot be used: {error}", f"Remove them: rm -r {folder}"
        ) from error
    return files


def client(folder: Path, name: str) -> Certificates:
    """Return the paths of a client's certificate. Raises ValueError for an invalid name."""
    if not _CLIENT.fullmatch(name) or name in ("ca", "tls"):
        raise ValueError(
            f"{name[:40]!r} is no client name (letters, digits, '-', '_', '.'; not ca, not tls)"
        )
    return Certificates(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


def _authority(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Topolog NATS authority")])
    built = _begun(name, name, key, now, AUTHORITY_LASTS).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    built = built.add_extension(_usage(signs=True), critical=True)
    return built.sign(key, hashes.SHA256()), key


def _server(names: Sequence[str], authority: Pair, now: datetime) -> Pair:
    """Create a certificate for both ends, because the servers of a cluster are clients of each
    other."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Topolog NATS")])
    built = _begun(name, authority[0].subject, key, now, LASTS).add_extension(
        _called(names), critical=False
    )
    return _signed(
        built, key, authority, [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    )


def _client(name: str, authority: Pair, now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    built = _begun(subject, authority[0].subject, key, now, LASTS).add_extension(
        _called([name]), critical=False
    )
    return _signed(built, key, authority, [ExtendedKeyUsageOID.CLIENT_AUTH])


def _signed(
    built: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    authority: Pair,
    used: list[x509.ObjectIdentifier],
) -> Pair:
    purposes = x509.ExtendedKeyUsage(used)
    built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    built = built.add_extension(_usage(signs=False), critical=True)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority[1].public_key())
    return built.add_extension(purposes, False).add_extension(issuer, False).sign(
        authority[1], hashes.SHA256()
    ), key


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lasts: timedelta,
) -> x509.CertificateBuilder:
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
    )
    built = (
        built.serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lasts)
    )
    return built.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(not signs, False, False, False, False, signs, signs, False, False)


def _called(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_general(name) for name in names])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _serves(
    certificate: x509.Certificate, names: Sequence[str], authority: x509.Certificate, now: datetime
) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
        called = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return (
        set(called) == set(_called(names))
        and certificate.not_valid_after_utc - now > RENEWED_BEFORE
    )


def _read(certificate: Path, key: Path) -> Pair | None:
    """Return the pair of files; None if one of them is missing. Raises OSError, ValueError."""
    if not certificate.exists() or not key.exists():
        return None
    read = serialization.load_pem_private_key(key.read_bytes(), password=None)
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{key} is no elliptic curve key")
    return x509.load_pem_x509_certificate(certificate.read_bytes()), read


def _keep(pair: Pair, certificate: Path, key: Path) -> Pair:
    """Write the key first, so that a certificate always has its key."""
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    certificate.unlink(missing_ok=True)
    write(key, pair[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, plain), 0o600)
    write(certificate, pair[0].public_bytes(pem), 0o644)
    return pair
