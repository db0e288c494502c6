"""Ports of children: free, apart, and none that an outgoing connection may sit on when a child
starts again.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from services.embedded.errors import PortInUseError
from services.embedded.ports import HOST, RANGE, free_port
from services.embedded.up.children import SIMULATOR, choose_ports
from services.embedded.up.options import UpOptions

OPTIONS = UpOptions(data_dir=Path(), nodes=4, exporters=2, schedulers=2, standbys=1)
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_every_child_has_its_own_port_below_those_of_outgoing_connections() -> None:
    ports = choose_ports(OPTIONS).by_name
    assert len(ports) == len(set(ports.values())) == 9
    assert all(port in RANGE for port in ports.values())
    if OUTGOING.exists():
        assert max(RANGE) < int(OUTGOING.read_text().split()[0])


def test_the_api_keeps_its_port_while_it_is_free() -> None:
    last = free_port(None, ())
    assert choose_ports(OPTIONS, last).by_name[SIMULATOR] == last
    with socket.create_server((HOST, last)):
        assert choose_ports(OPTIONS, last).by_name[SIMULATOR] != last


CHOOSES = """
from services.embedded.ports import free_port
print(free_port(None, ()), flush=True)
input()
"""


def test_a_port_that_another_process_chose_is_not_chosen_even_before_it_listens() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHOOSES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as second:
        assert second.stdout is not None
        port = int(second.stdout.readline())
        assert free_port(port, ()) != port
        second.kill()
    assert free_port(port, ()) == port
    assert free_port(port, ()) == port, "its own claim does not stand in the way of who chose it"


def test_a_chosen_port_in_use_is_refused_by_its_number() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)):
            choose_ports(msgspec.structs.replace(OPTIONS, api_port=port))
    assert choose_ports(msgspec.structs.replace(OPTIONS, api_port=port)).by_name[SIMULATOR] == port
