from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.media.address import is_public

pytestmark = pytest.mark.pure

PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]

PRIVATE = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.1.2.3", "169.254.169.254", "172.16.0.1", "192.168.1.1",
    "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "fd00::1", "fe80::1", "fe80::1%eth0",
    "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808",
    "2002:7f00:1::1", "2002:a00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
]  # fmt: skip

NO_ADDRESS = ["", "localhost", "127.1", "2130706433", "0x7f000001", "8.8.8.8.8", "8.8.8.8/32", "[::1]"]


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE + NO_ADDRESS)
def test_not_public(address: str) -> None:
    assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_a_wrapped_address_counts_as_itself(inner: ipaddress.IPv4Address) -> None:
    number, expected = int(inner), is_public(str(inner))
    mapped = ipaddress.IPv6Address((0xFFFF << 32) + number)
    nat64 = ipaddress.IPv6Address((0x64FF9B << 96) + number)
    six_to_four = ipaddress.IPv6Address((0x2002 << 112) + (number << 80) + 1)
    assert [is_public(str(one)) for one in (mapped, nat64, six_to_four)] == [expected] * 3
