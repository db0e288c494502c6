"""The keys by which clients authenticate to NATS: Ed25519 seeds and public keys in NATS' text form,
and files of seeds.

A text is base32 of a prefix, 32 bytes and their CRC-16 (nats-io/nkeys); the prefix of a seed
includes the prefix of its kind. The first line of a seed file names, after `#`, the client's inbox.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from pathlib import Path

import msgspec
from nacl.signing import SigningKey

_SEED = 18 << 3
_USER = 20 << 3
_ACCOUNT = 0 << 3
_BYTES = 32
MAX_FILE_BYTES = 4096


class KeyInvalid(ValueError):
    """A text that is not a user's seed. The message never contains the text."""


class Login(msgspec.Struct, frozen=True):
    """The content of a seed file; `name` is empty if the file has none."""

    name: str
    seed: str

    def __repr__(self) -> str:
        return f"Login({self.name!r})"


class Issuer:
    """A signing key of an account that lives as long as this process. Servers that are configured
    with `public` trust its signatures.
    """

    def __init__(self) -> None:
        self._key = SigningKey.generate()
        self.public = _text(bytes([_ACCOUNT]) + bytes(self._key.verify_key))

    def sign(self, data: bytes) -> bytes:
        return bytes(self._key.sign(data).signature)


def new_seed() -> str:
    """Return a new random seed."""
    return _text(bytes([_SEED | _USER >> 5, (_USER & 31) << 3]) + secrets.token_bytes(_BYTES))


def public(seed: str) -> str:
    """Return the public key, `U...`, of a seed. Raises KeyInvalid."""
    return _text(bytes([_USER]) + bytes(_key(seed).verify_key))


def signature(seed: str, nonce: str) -> bytes:
    """Return the base64 signature of a server's nonce. Raises KeyInvalid."""
    return base64.b64encode(_key(seed).sign(nonce.encode()).signature)


def file_text(login: Login) -> str:
    """Return the content of a seed file."""
    return f"# {login.name}\n{login.seed}\n"


def read(path: Path) -> Login:
    """Read a seed file. Raises KeyInvalid, OSError."""
    with path.open("rb") as opened:
        lines = opened.read(MAX_FILE_BYTES).decode("ascii", errors="replace").split("\n")
    names = [line.lstrip("# ").strip() for line in lines if line.startswith("#")]
    seed = next((line.strip() for line in lines if line.startswith("SU")), "")
    public(seed)
    return Login(names[0] if names else "", seed)


def _text(prefixed: bytes) -> str:
    checked = prefixed + binascii.crc_hqx(prefixed, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _key(seed: str) -> SigningKey:
    if not seed:
        raise KeyInvalid(
            "holds no user seed (a line that begins with SU); "
            "create one with topolog nats credentials"
        )
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except (binascii.Error, ValueError):
        raise KeyInvalid("holds a seed that is not base32") from None
    if len(raw) != _BYTES + 4 or binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") != raw[-2:]:
        raise KeyInvalid("holds a seed that was cut or altered")
    if raw[:2] != bytes([_SEED | _USER >> 5, (_USER & 31) << 3]):
        raise KeyInvalid("holds a seed of another kind than a user")
    return SigningKey(raw[2:-2])
