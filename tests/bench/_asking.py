"""Questions of the command line, each in a process of its own: CPU seconds, seconds, memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

# Reports the largest memory of the process at its end. That of `wait4` begins with the parent's.
_RUN = """
import atexit, sys
from services.cli.main import main
atexit.register(lambda: print(open("/proc/self/status").read(), file=sys.stderr))
main()
"""
_MEMORY = re.compile(r"VmHWM:\s*(\d+) kB")


class Asked(msgspec.Struct, frozen=True):
    """One answered question. `cpu_s` and `mb` are of its process, from its start to its end."""

    question: str
    cpu_s: float
    s: float
    mb: int
    code: int


def asked(url: str, words: Sequence[str]) -> Asked:
    """Ask `topolog replay WORDS` of the log at `url`."""
    command = [sys.executable, "-c", _RUN, "replay", *words, "--database-url", url]
    begun_s, times = time.monotonic(), os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    times_now, memory = os.times(), _MEMORY.search(done.stderr)
    return Asked(
        " ".join(words),
        round(sum(times_now[2:4]) - sum(times[2:4]), 2),
        round(time.monotonic() - begun_s, 2),
        int(memory[1]) // 1024 if memory else 0,
        done.returncode,
    )
