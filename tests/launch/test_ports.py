from __future__ import annotations

import socket

import pytest

from omni.launch.errors import LaunchError
from omni.launch.ports import Address, check_free, free_port

pytestmark = pytest.mark.process

SETTING = "--port or OMNI_PORT"


def test_free_ports_stay_free() -> None:
    port = free_port()
    for _ in range(2):
        check_free([Address("127.0.0.1", port, SETTING)])


@pytest.mark.parametrize("holder", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("wanted", ["127.0.0.1", "0.0.0.0"])
def test_a_taken_port_names_itself_and_its_setting(holder: str, wanted: str) -> None:
    with socket.create_server((holder, 0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(LaunchError, match=f"^port {port} on {wanted} is taken; .*{SETTING}$"):
            check_free([Address(wanted, port, SETTING)])


def test_two_settings_with_the_same_port() -> None:
    port = free_port()
    with pytest.raises(LaunchError, match="--second"):
        check_free([Address("127.0.0.1", port, "--first"), Address("127.0.0.1", port, "--second")])


def test_an_address_that_is_not_ours() -> None:
    # 192.0.2.0/24 is for documentation (RFC 5737).
    with pytest.raises(LaunchError, match=f"can't listen on 192.0.2.1 port 80.*{SETTING}"):
        check_free([Address("192.0.2.1", 80, SETTING)])


def test_a_name_that_is_no_address() -> None:
    with pytest.raises(LaunchError, match="there is no address 'no such host'"):
        check_free([Address("no such host", 80, SETTING)])
