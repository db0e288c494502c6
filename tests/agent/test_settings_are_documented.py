"""docs/agent.md names every setting of the agent with its default."""

from __future__ import annotations

from pathlib import Path

import msgspec

from services.agent.settings import AgentSettings
from shared.runtime.settings import CommonSettings

TEXT = (Path(__file__).parents[2] / "docs" / "agent.md").read_text()
OF_THE_NODE = {"sysfs", "cgroups", "host_proc", "kubelet_dir"}


def test_every_setting_of_the_agent_is_documented() -> None:
    common = {field.name for field in msgspec.structs.fields(CommonSettings)}
    for field in msgspec.structs.fields(AgentSettings):
        variable = f"`TOPOLOG_{field.name.upper()}`"
        if field.name in OF_THE_NODE:
            assert variable in TEXT
        elif field.name not in common:
            default = f"`{field.default}`" if field.default else "none"
            assert f"|{variable}|{default}|" in TEXT
