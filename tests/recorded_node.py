"""The recorded node: what a kubelet answered moment by moment, with its host's sysfs and
configuration, as files.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).parent / "exporter" / "recordings.tar.gz"


def unpacked(folder: Path) -> Path:
    """The folder, with one folder a moment, `sysfs` and `kubelet-config.yaml` in it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(
            tarfile, "data_filter", None
        )  # Python before 3.11.4 has none
        archive.extractall(folder)
    return folder
