"""The wheel works outside a clone, as `pipx install` would use it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from services.scheduler.snapshot import kernel
from shared.domain.version import VERSION

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both files."""
    folder = tmp_path_factory.mktemp("dist")
    script = [sys.executable, "scripts/dist.py", str(folder)]
    built = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_wheel_has_everything_that_runs_and_no_tests(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.name.startswith(f"topolog-{VERSION}-cp311-abi3-")
    names = set(zipfile.ZipFile(wheel).namelist())
    migrations = {
        f"migrations/versions/{path.name}"
        for path in (ROOT / "migrations" / "versions").glob("*.py")
    }
    assert {"topolog.py", "migrations/env.py", *migrations} <= names
    built = "services/scheduler/snapshot/_kernel"
    assert (f"{built}.abi3.so" in names) == (kernel.COMPILED is not None)
    assert not [name for name in names if name.startswith("tests/")]
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = set(archive.getnames())
    assert {f"topolog-{VERSION}/{name}" for name in ("pyproject.toml", f"{built}.c")} <= packed


def test_topolog_up_runs_from_the_wheel_in_an_empty_folder(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Without a policy, because tests/road has the others. It exits 1 if a kubelet rejects a pod.
    shape = ["--nodes", "3", "--policy", "none", "--zones", "1", "--pods", "15"]
    fast = ["--speed", "max", "--report-interval", "1", "--exit-when-idle"]
    command = ["up", *shape, *fast, "--data-dir", "data"]
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "topolog", *command],
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import services, migrations; print(services.__file__)"],
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.strip() == str(site / "services" / "__init__.py")
