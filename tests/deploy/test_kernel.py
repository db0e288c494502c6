"""The kernel is built by whatever compiler a machine has, and setup works without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from services.scheduler.snapshot import kernel

ROOT = Path(__file__).resolve().parents[2]
SOURCES = "services/scheduler/snapshot/compiled"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what the build reads. Without `__init__.py` its packages would not win over
    those of a project that `make up` has put on Python's path.
    """
    packages = [f"{path.relative_to(ROOT)}/__init__.py" for path in (ROOT / SOURCES).parents[:3]]
    files = "scripts/build_kernel.py", "services/scheduler/snapshot/kernel.py"
    for name in (*packages, *files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / SOURCES, tmp_path / SOURCES)
    return tmp_path


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def says(folder: Path) -> str:
    code = "from services.scheduler.snapshot import kernel; print(kernel.description())"
    return run(folder, "-c", code, PYTHONPATH=str(folder)).stdout.strip()


def test_a_clone_has_the_kernel_after_a_build_like_this_one(clone: Path) -> None:
    assert says(clone) == "no compiled kernel, plain Python"
    assert run(clone, "scripts/build_kernel.py").returncode == 0
    assert says(clone) == kernel.description()


@pytest.mark.parametrize("variables", [{"PATH": ""}, {"CC": "no-such-compiler"}, {"CC": "false"}])
def test_without_a_compiler_the_build_says_so_and_setup_goes_on(
    clone: Path, variables: dict[str, str]
) -> None:
    done = run(clone, "scripts/build_kernel.py", **variables)
    assert (done.returncode, says(clone)) == (0, "no compiled kernel, plain Python")
    assert done.stderr.startswith("no compiled kernel: ")
    assert run(clone, "scripts/build_kernel.py", "--required", **variables).returncode == 1


def test_without_a_compiler_make_fetches_one_for_the_build(clone: Path, tmp_path: Path) -> None:
    """The package that pip installs here calls this machine's compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("this machine has no compiler that the package could call")
    package, pip, path = tmp_path / "ziglang.py", tmp_path / "pip.py", os.environ["PATH"]
    package.write_text(
        f"import os, sys\nos.execve({compiler!r}, ['cc', *sys.argv[2:]], {{'PATH': {path!r}}})\n",
        encoding="utf-8",
    )
    pip.write_text(
        "import shutil, sys\n"
        f"shutil.copy({str(package)!r}, sys.argv[sys.argv.index('--target') + 1])\n",
        encoding="utf-8",
    )
    done = run(clone, "scripts/build_kernel.py", "--fetch", PATH="", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert says(clone) == kernel.description()


def test_a_kernel_of_another_version_counts_as_absent(clone: Path) -> None:
    source = clone / SOURCES / "module.c"
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("#define INTERFACE ", "#define INTERFACE 9"), encoding="utf-8")
    run(clone, "scripts/build_kernel.py")
    assert says(clone) == "no compiled kernel, plain Python"


def test_make_and_the_image_build_the_kernel() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "install: $(STAMP) $(KERNEL) " in makefile
    assert "scripts/build_kernel.py --fetch" in makefile
    assert "up: $(RUNTIME) $(KERNEL) " in makefile
    build, _, final = (ROOT / "Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")
    assert "build_kernel.py --required" in build
    assert "_kernel.abi3.so services/scheduler/snapshot/" in final
