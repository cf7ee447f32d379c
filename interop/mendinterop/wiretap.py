"""A UDP relay next to the client. It records the datagrams to the client, as evidence independent of both ends."""

import selectors
import socket
import threading
import time
from typing import NamedTuple


class Arrival(NamedTuple):
    """A datagram to a client: size and time, and the fields visible on the path."""

    at: float
    """Arrival time in seconds."""
    size: int
    """Bytes of UDP payload."""
    has_long_header: bool
    """Header form of the first packet (RFC 8999, section 5.1)."""
    version: bytes
    """Version in a long header."""


class Wiretap:
    """Relays between one server and any number of client addresses, until closed."""

    def __init__(self, server: tuple[str, int]):
        self.server = server
        self.family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        self.front = socket.socket(self.family, socket.SOCK_DGRAM)
        self.front.bind(("::1" if self.family == socket.AF_INET6 else "127.0.0.1", 0))
        self.front.setblocking(False)
        self.address = self.front.getsockname()[:2]
        self.arrivals: list[Arrival] = []
        self.running = True
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.front, selectors.EVENT_READ, None)
        self.upstream: dict[tuple, socket.socket] = {}
        self.thread = threading.Thread(target=self.relay, daemon=True)
        self.thread.start()

    def relay(self) -> None:
        while self.running:
            for key, _ in self.selector.select(timeout=0.1):
                try:
                    self.forward(key.fileobj, key.data)
                except (BlockingIOError, ConnectionRefusedError):
                    continue

    def forward(self, source: socket.socket, client: tuple | None) -> None:
        if client is None:
            datagram, sender = source.recvfrom(65536)
            self.upstream_for(sender).send(datagram)
            return
        datagram = source.recv(65536)
        self.arrivals.append(Arrival(time.monotonic(), len(datagram), bool(datagram[:1] >= b"\x80"), datagram[1:5]))
        self.front.sendto(datagram, client)

    def upstream_for(self, client: tuple) -> socket.socket:
        if client not in self.upstream:
            sock = socket.socket(self.family, socket.SOCK_DGRAM)
            sock.connect(self.server)
            sock.setblocking(False)
            self.upstream[client] = sock
            self.selector.register(sock, selectors.EVENT_READ, client)
        return self.upstream[client]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.running = False
        self.thread.join(5)
        self.selector.close()
        for sock in [self.front, *self.upstream.values()]:
            sock.close()
