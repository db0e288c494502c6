"""The recordings, unpacked once a session."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parent / "recordings.tar.gz"
MOMENTS = (
    "00-empty",
    "01-one-guaranteed",
    "02-with-burstable-and-besteffort",
    "03-second-guaranteed-with-hugepages",
    "04-fractional-guaranteed",
    "05-rejected-topology-affinity",
    "06-first-deleted",
    "09-empty-again",
)


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with one folder a moment, `sysfs` and `kubelet-config.yaml`."""
    folder = tmp_path_factory.mktemp("recordings")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder
