"""Which IP addresses belong to the public internet."""

from __future__ import annotations

import ipaddress
from typing import Final

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 addresses as seen from networks without IPv4 (RFC 6052); Python counts all of them as reserved."""


def is_public(address: str) -> bool:
    """Whether `address` is one that anybody on the internet could reach. False for what isn't an address at all.

    An IPv4 address inside an IPv6 one (mapped, NAT64, 6to4) counts as itself. Teredo addresses never pass: they lead
    to a host behind somebody's router.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None or ip.teredo is not None:
            return False
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip.is_site_local:
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
