"""
Kubernetes' `ip` and `cidr` functions.

IPv4-mapped IPv6 addresses are rejected in every spelling, as the API server does; the CEL
specification rejects only the dotted one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final

from policies.cel.functions.overload import Function, FunctionError, Overload, opaque, text_of

IP: Final = "net.IP"
CIDR: Final = "net.CIDR"
_PREFIX: Final = re.compile(r"(?:0|[1-9][0-9]{0,2})")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def _parse_ip(text: str) -> Address:
    if "%" in text:
        raise FunctionError(f"IP Address with zone value is not allowed: {text!r}")
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        message = f"IP Address {text!r} parse error during conversion from string"
        raise FunctionError(f"{message}: {error}") from error
    _refuse_mapped(address)
    return address


def _refuse_mapped(address: Address) -> None:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise FunctionError(f"IPv4-mapped IPv6 address is not allowed: {address}")


def _parse_cidr(text: str) -> Interface:
    host, slash, prefix = text.partition("/")
    if "%" in host:
        raise FunctionError(f"CIDR with zone value is not allowed: {text!r}")
    try:
        if not slash or not _PREFIX.fullmatch(prefix):
            raise ValueError("an address, a slash and a prefix length are wanted")
        interface = ipaddress.ip_interface(text)
    except ValueError as error:
        message = "network address parse error during conversion from string"
        raise FunctionError(f"{message}: {error}") from error
    _refuse_mapped(ipaddress.ip_address(interface.ip))
    return interface


def _new_ip(address: Address) -> dict[str, object]:
    return opaque(IP, str(address))


def _new_cidr(interface: Interface) -> dict[str, object]:
    return opaque(CIDR, f"{interface.ip}/{interface.network.prefixlen}")


def _ip(value: object) -> Address:
    return _parse_ip(value if isinstance(value, str) else _text(value, IP))


def _cidr(value: object) -> Interface:
    return _parse_cidr(value if isinstance(value, str) else _text(value, CIDR))


def _text(value: object, kind: str) -> str:
    text = text_of(value, kind)
    if text is None:
        raise FunctionError(f"not a value of type {kind}", kind="no-overload")
    return text


def _valid(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def valid(text: str) -> bool:
        try:
            parse(text)
        except FunctionError:
            return False
        return True

    return valid


def _link_local_multicast(value: object) -> bool:
    address = _ip(value)
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.IPv4Network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


def _link_local_unicast(value: object) -> bool:
    address = _ip(value)
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.IPv4Network("169.254.0.0/16")
    return address in ipaddress.IPv6Network("fe80::/10")


def _global_unicast(value: object) -> bool:
    address = _ip(value)
    return not (
        str(address) == "255.255.255.255"
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or _link_local_unicast(value)
    )


def _contains_ip(network: object, value: object) -> bool:
    wide, address = _cidr(network).network, _ip(value)
    return wide.version == address.version and address in wide


def _contains_cidr(network: object, value: object) -> bool:
    wide, narrow = _cidr(network).network, _cidr(value)
    if wide.version != narrow.version:
        return False
    return narrow.ip in wide and wide.prefixlen <= narrow.network.prefixlen


def _masked(value: object) -> dict[str, object]:
    return opaque(CIDR, str(_cidr(value).network))


def _member(
    name: str, parameters: tuple[str, ...], result: str, call: Callable[..., object]
) -> Function:
    return Function(name, (Overload(parameters, result, call, member=True),))


FUNCTIONS: Final = (
    Function(
        "ip",
        (
            Overload(("string",), IP, lambda text: _new_ip(_parse_ip(text))),
            Overload(
                (CIDR,),
                IP,
                lambda value: _new_ip(ipaddress.ip_address(_cidr(value).ip)),
                member=True,
            ),
        ),
    ),
    Function("isIP", (Overload(("string",), "bool", _valid(_parse_ip)),)),
    Function(
        "ip.isCanonical",
        (Overload(("string",), "bool", lambda text: str(_parse_ip(text)) == text),),
    ),
    _member("family", (IP,), "int", lambda value: _ip(value).version),
    _member("isUnspecified", (IP,), "bool", lambda value: _ip(value).is_unspecified),
    _member("isLoopback", (IP,), "bool", lambda value: _ip(value).is_loopback),
    _member("isLinkLocalMulticast", (IP,), "bool", _link_local_multicast),
    _member("isLinkLocalUnicast", (IP,), "bool", _link_local_unicast),
    _member("isGlobalUnicast", (IP,), "bool", _global_unicast),
    Function("cidr", (Overload(("string",), CIDR, lambda text: _new_cidr(_parse_cidr(text))),)),
    Function("isCIDR", (Overload(("string",), "bool", _valid(_parse_cidr)),)),
    Function(
        "containsIP",
        (
            Overload((CIDR, "string"), "bool", _contains_ip, member=True),
            Overload((CIDR, IP), "bool", _contains_ip, member=True),
        ),
    ),
    Function(
        "containsCIDR",
        (
            Overload((CIDR, "string"), "bool", _contains_cidr, member=True),
            Overload((CIDR, CIDR), "bool", _contains_cidr, member=True),
        ),
    ),
    _member("masked", (CIDR,), CIDR, _masked),
    _member("prefixLength", (CIDR,), "int", lambda value: _cidr(value).network.prefixlen),
    Function(
        "string",
        (
            Overload((IP,), "string", lambda value: _text(value, IP)),
            Overload((CIDR,), "string", lambda value: _text(value, CIDR)),
        ),
    ),
)
