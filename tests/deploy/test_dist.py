"""The wheel works outside a clone, as `pipx install` would use it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.scheduler.snapshot import kernel
from shared.domain.version import VERSION

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both files."""
    folder = tmp_path_factory.mktemp("dist")
    script = [sys.executable, "scripts/dist.py", str(folder), "https://releases.example.com/v1"]
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
    assert ("services/scheduler/snapshot/_kernel.abi3.so" in names) == (kernel.COMPILED is not None)
    assert not [name for name in names if name.startswith("tests/")]
    (sdist,) = dist.glob("topolog-*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = set(archive.getnames())
    sources = (ROOT / "services/scheduler/snapshot/compiled").iterdir()
    needed = "pyproject.toml", *(str(path.relative_to(ROOT)) for path in sources)
    assert {f"topolog-{VERSION}/{name}" for name in needed} <= packed


def test_the_plugin_runs_alone_as_krew_installs_it(dist: Path, tmp_path: Path) -> None:
    manifest = yaml.safe_load((dist / "topolog.yaml").read_text())
    krew_takes(manifest)
    (platform,) = manifest["spec"]["platforms"]
    archive = dist / platform["uri"].removeprefix("https://releases.example.com/v1/")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    with tarfile.open(archive) as packed:
        assert sorted(packed.getnames()) == sorted(file["from"] for file in platform["files"])
        packed.extractall(tmp_path, filter="data")
    plugin = tmp_path / platform["bin"]
    assert os.access(plugin, os.X_OK)
    completing = tmp_path / "kubectl_complete-topolog"
    completing.symlink_to(plugin)
    for command, words, output in (
        (plugin, ("explain", "--help"), "usage: kubectl topolog explain"),
        (completing, ("wh",), "why-not\n:4\n"),
    ):
        # Isolated from this environment's packages: -I and -S.
        line = [sys.executable, "-I", "-S", str(command), *words]
        ran = subprocess.run(line, capture_output=True, text=True, check=True)
        assert ran.stdout.startswith(output)


def krew_takes(manifest: dict[str, Any]) -> None:
    """Check what krew's own validation checks (krew, internal/index/validation/validate.go)."""
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert len(spec["shortDescription"].splitlines()) == 1
    assert spec["platforms"]
    for platform in spec["platforms"]:
        assert platform["uri"].startswith("https://")
        assert re.fullmatch("[a-f0-9]{64}", platform["sha256"])
        assert platform["bin"] in [file["from"] for file in platform["files"]]
        assert all(file["to"] for file in platform["files"])
        (condition,) = platform["selector"]["matchExpressions"]
        assert condition["key"] in ("os", "arch")


@pytest.fixture(scope="module")
def clean(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a new environment that has the wheel and, from this one, what it needs."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    (wheel,) = dist.glob("*.whl")
    subprocess.run([*pip, "--no-index", "--quiet", str(wheel)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin"


def test_topolog_up_runs_from_the_wheel_in_an_empty_folder(clean: Path, tmp_path: Path) -> None:
    env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"  # where nats-server is
    # Without a policy, because tests/road has the others. It exits 1 if a kubelet rejects a pod.
    shape = ["--nodes", "3", "--policy", "none", "--zones", "1", "--pods", "15"]
    fast = ["--speed", "max", "--report-interval", "1", "--exit-when-idle"]
    ended = subprocess.run(
        [clean / "topolog", "up", *shape, *fast, "--data-dir", "data"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    code = "import services, migrations; print(services.__file__)"
    for words in (["-P", "-c", code], ["-P", "-m", "topolog", "--version"]):
        ran = subprocess.run(
            [clean / "python", *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.startswith((str(clean.parent), f"topolog {VERSION}"))
