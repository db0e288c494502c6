"""`topolog up --kubeconfig` tells how nodes come to report and what it saw, and never a password."""

from __future__ import annotations

from pathlib import Path

import msgspec

from services.embedded.data_dir import DataDir, ServerAddresses
from services.embedded.up.children import Ports
from services.embedded.up.display import summary_lines
from services.embedded.up.options import UpOptions
from services.embedded.up.run import hints
from services.embedded.up.status import Scheduling, Status


def test_how_an_exporter_is_attached_is_told_without_the_password(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    addresses = ServerAddresses("postgresql://x", "nats://topolog:secret@127.0.0.1:24222")
    (tmp_path / "addresses.json").write_bytes(msgspec.json.encode(addresses))
    told = "\n".join(hints(UpOptions(data_dir=tmp_path, kubeconfig="/some/kubeconfig"), folder, Ports({})))
    assert "NATS on 127.0.0.1:24222" in told
    assert "services.exporter" in told
    assert "secret" not in told


def test_the_summary_of_an_outside_cluster_tells_of_its_pods() -> None:
    scheduling = Scheduling(position=99, reserved=7, pods_bound=2, pods_running=3, pods_pending=1, nodes=4)
    (line,) = summary_lines(Status(1.0, scheduling=scheduling))
    assert line == "7 pods placed, 5 on 4 nodes now, 1 waiting; 99 facts, 0 restart(s)"
