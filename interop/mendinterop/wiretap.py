"""A UDP relay beside the client that notes what comes to it, Version Negotiation packets and silences, so that neither end has to
be believed."""

import selectors
import socket
import threading
import time


class Wiretap:
    """Relays between one server and any number of client addresses until it is closed."""

    def __init__(self, server: tuple[str, int]):
        self.server = server
        self.family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        self.front = socket.socket(self.family, socket.SOCK_DGRAM)
        self.front.bind(("::1" if self.family == socket.AF_INET6 else "127.0.0.1", 0))
        self.front.setblocking(False)
        self.address = self.front.getsockname()[:2]
        self.version_negotiations = 0
        self.longest_silence = 0.0
        self.last_arrival: float | None = None
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
        now = time.monotonic()
        if self.last_arrival is not None:
            self.longest_silence = max(self.longest_silence, now - self.last_arrival)
        self.last_arrival = now
        # RFC 8999, section 6: a long header with version 0.
        if len(datagram) > 5 and datagram[0] & 0x80 and datagram[1:5] == bytes(4):
            self.version_negotiations += 1
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
