"""`python scripts/build_kernel.py [--required] [--fetch]`: compile the scheduler's kernel.

Standard library only, because the image's build runs it before anything is installed. Without a C
compiler, `--fetch` installs one from PyPI (ziglang, 100 MB) for the time of the build. Without
Python's headers, or if nothing compiles, Topolog works and decides more slowly: then this says so
and succeeds, except with `--required`.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = ROOT / "services" / "scheduler" / "snapshot"
# Any later Python loads it, too.
MODULE = SNAPSHOT / "_kernel.abi3.so"
COMPILERS = "cc", "gcc", "clang"
FETCHED = "ziglang==0.17.1"


def main(required: bool, fetch: bool) -> int:
    problem = build(fetch)
    if problem:
        print(f"no compiled kernel: {problem}; Topolog decides in plain Python", file=sys.stderr)
    return 1 if problem and required else 0


def build(fetch: bool) -> str:
    """Build the module; return why that is impossible, "" if it was done."""
    headers = sysconfig.get_path("include")
    if not (Path(headers) / "Python.h").exists():
        return f"Python's headers are not in {headers}"
    compiler = _compiler()
    if compiler:
        return _built(compiler, headers, os.environ)
    if not fetch:
        return "no C compiler is installed"
    print(f"no C compiler is installed: fetching {FETCHED} for this build (100 MB)")
    with tempfile.TemporaryDirectory() as folder:
        install = "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"
        command = [sys.executable, *install, "--only-binary", ":all:", "--target", folder, FETCHED]
        if subprocess.run(command, check=False).returncode:
            return f"no C compiler is installed, and pip could not fetch {FETCHED}"
        environment = {"PYTHONPATH": folder, "ZIG_GLOBAL_CACHE_DIR": f"{folder}/cache"}
        compiler = [sys.executable, "-m", "ziglang", "cc"]
        return _built(compiler, headers, {**os.environ, **environment})


def _built(compiler: list[str], headers: str, variables: Mapping[str, str]) -> str:
    made = MODULE.with_suffix(f".{os.getpid()}")
    system = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    flags = ["-O3", "-fPIC", "-fvisibility=hidden", "-shared", *system, f"-I{headers}"]
    sources = sorted(str(path) for path in (SNAPSHOT / "compiled").glob("*.c"))
    try:
        command = [*compiler, *flags, "-o", str(made), *sources]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{compiler[0]} failed:\n{done.stderr}"
        made.replace(MODULE)
    except OSError as error:
        return str(error)
    finally:
        made.unlink(missing_ok=True)
    return ""


def _compiler() -> list[str]:
    wanted = shlex.split(os.environ.get("CC", ""))
    if wanted:
        return wanted
    return next(([name] for name in COMPILERS if shutil.which(name)), [])


if __name__ == "__main__":
    sys.exit(main("--required" in sys.argv[1:], "--fetch" in sys.argv[1:]))
