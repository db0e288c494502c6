"""Keep the code that folds events in this release, for the tests of the next release.

Run `python scripts/previous_release.py` when a release is made. It writes
`tests/events/previous_release.zip`: the sources of decoding and of the ledger's fold, always
with the same bytes for the same sources. In the next release this code reads its events
(`tests/events/test_previous_release.py`).
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path.cwd()
sys.path.insert(0, str(ROOT))

from shared.eventlog.closure import closure, source  # noqa: E402 - of the checkout that this runs in
from shared.events import codec, setting_aside  # noqa: E402
from shared.hints import registry  # noqa: E402
from shared.ledger import fold  # noqa: E402

TARGET = Path(__file__).resolve().parents[1] / "tests/events/previous_release.zip"


def main() -> None:
    """Write the archive and print its contents."""
    names = closure(module.__name__ for module in (codec, setting_aside, fold, registry))
    with zipfile.ZipFile(TARGET, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in names:
            archive.writestr(_entry(name), source(name))
    print(f"{len(names)} modules, {TARGET.stat().st_size >> 10} KiB in {TARGET}")


def _entry(name: str) -> zipfile.ZipInfo:
    path = Path(*name.split("."))
    is_package = (ROOT / path).is_dir()
    entry = zipfile.ZipInfo(
        str(path / "__init__.py" if is_package else path.with_suffix(".py")), (2026, 1, 1, 0, 0, 0)
    )
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


if __name__ == "__main__":
    main()
