"""What the exporter reads from a real containerd and a real CRI-O about pods that run; skipped
where they cannot be started.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from services.exporter.answers import ListedContainer, ListedPod, MemoryBlock
from services.exporter.cri import reserve
from services.exporter.cri.source import CriSource
from services.exporter.folders import FolderTree
from tests.exporter.real_runtimes import MIB, TOOLS, lacking, running

pytestmark = pytest.mark.runtimes


@pytest.mark.parametrize("runtime", TOOLS)
async def test_what_a_real_runtime_tells_of_its_pods(runtime: str, tmp_path: Path) -> None:
    if problem := lacking(runtime):
        pytest.skip(problem)
    pinned: dict[int, object] = {1: 100_000, 2: 100_000, 3: 1024, 4: 256 * MIB, 6: "0", 7: "0"}
    own = ListedPod(
        "default",
        "own",
        (ListedContainer("main", (0,), (MemoryBlock("memory", (0,), 256 * MIB),)),),
    )
    shared = ListedPod("default", "shared", (ListedContainer("main"),))
    async with running(runtime, tmp_path) as pods:
        source = CriSource(
            str(pods.socket), FolderTree(Path("/sys")), (), reserve.parse("", ()), 10.0
        )
        sandbox = await pods.run("own", "/topolog-test/pod1", pinned)
        await pods.run("shared", "/topolog-test/burstable/pod2", {3: 1024, 6: "0"})
        await source.allocatable()
        assert await source.pods() == (own, shared)
        await pods.stop(sandbox)
        assert await source.pods() == (shared,)
        await source.close()
