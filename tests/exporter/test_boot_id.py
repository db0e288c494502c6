"""The boot id: of this very host, of a simulated tree, of a configured file."""

from pathlib import Path

import pytest

from services.exporter.folders import HOST_BOOT_ID, boot_id


def test_the_kernels_own_boot_id_is_read_when_nothing_else_is_there(tmp_path: Path) -> None:
    assert boot_id(tmp_path, None) == HOST_BOOT_ID.read_text(encoding="ascii").strip()


def test_a_tree_or_a_configured_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("simulated\n", encoding="ascii")
    assert boot_id(tmp_path, None) == "simulated"
    (tmp_path / "mine").write_text("configured\n", encoding="ascii")
    assert boot_id(tmp_path, tmp_path / "mine") == "configured"


def test_an_absent_file_is_named_with_the_flag_to_set(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent.*--boot-id-file"):
        boot_id(tmp_path, tmp_path / "absent")
