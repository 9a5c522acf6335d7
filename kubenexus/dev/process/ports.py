"""
Free TCP ports on 127.0.0.1.

Ports are taken below the range from which the kernel serves outgoing connections, so that between
the choice and the use no connection of this machine lands on one of them. Another program still
may: the caller retries with others when a port is taken.
"""

import random
import socket
from typing import Final

LOWEST: Final = 20000
HIGHEST: Final = 32000
HOST: Final = "127.0.0.1"


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free(count: int, *, source: random.Random | None = None) -> list[int]:
    source = source or random.Random()
    ports: list[int] = []
    for port in source.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST):
        if len(ports) == count:
            break
        if is_free(port):
            ports.append(port)
    return ports
