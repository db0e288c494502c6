"""The recordings, unpacked once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorded_node import unpacked

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
    """Return the folder of recordings: one folder for each moment, `sysfs` and
    `kubelet-config.yaml`.
    """
    return unpacked(tmp_path_factory.mktemp("recordings"))
