"""Certificates for tests, made by the machine's openssl: an authority and its certificates. One PEM
file holds key and certificate.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

OPENSSL = shutil.which("openssl")


class Authority:
    """Issues certificates into a folder. Skips the test without openssl."""

    def __init__(self, folder: Path, name: str) -> None:
        if OPENSSL is None:
            pytest.skip("needs the openssl command")
        self._folder, self._name = folder, name
        self.ca, self._key = str(folder / f"{name}-ca.pem"), str(folder / f"{name}-ca.key")
        self._run(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-keyout",
            self._key,
            "-out",
            self.ca,
        )

    def issue(self, name: str) -> str:
        """A certificate for this common name; the path of its PEM file."""
        base = self._folder / f"{self._name}-{name}"
        key, asked, made = f"{base}.key", f"{base}.csr", f"{base}.crt"
        self._run(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            f"/CN={name}",
            "-keyout",
            key,
            "-out",
            asked,
        )
        self._run(
            "x509",
            "-req",
            "-in",
            asked,
            "-CA",
            self.ca,
            "-CAkey",
            self._key,
            "-CAcreateserial",
            "-days",
            "2",
            "-out",
            made,
        )
        both = Path(f"{base}.pem")
        both.write_text(Path(key).read_text() + Path(made).read_text())
        return str(both)

    def _run(self, *command: str) -> None:
        assert OPENSSL is not None
        subprocess.run([OPENSSL, *command], check=True, capture_output=True)
