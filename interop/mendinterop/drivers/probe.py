"""Raw UDP client for Version Negotiation (RFC 8999, section 6; RFC 9000, section 6)."""

import os
import socket

from mendinterop.task import Task, drive

RESERVED_VERSION = 0x1A2A3A4A
QUIC_V1 = 1


def initial(destination: bytes, source: bytes, size: int) -> bytes:
    """Returns a long-header packet of a reserved version."""
    header = b"\xc0" + RESERVED_VERSION.to_bytes(4) + bytes([len(destination)]) + destination + bytes([len(source)]) + source
    return header + bytes(size - len(header))


def check(answer: bytes, destination: bytes, source: bytes) -> None:
    if not answer[0] & 0x80 or answer[1:5] != bytes(4):
        raise RuntimeError("the answer is not a Version Negotiation packet")
    # The answer swaps the connection IDs, of any length (RFC 8999 allows 255 bytes).
    expected = bytes([len(source)]) + source + bytes([len(destination)]) + destination
    if answer[5 : 5 + len(expected)] != expected:
        raise RuntimeError("the connection IDs were not swapped")
    rest = answer[5 + len(expected) :]
    versions = [int.from_bytes(rest[at : at + 4]) for at in range(0, len(rest), 4)]
    if len(rest) % 4 or QUIC_V1 not in versions or RESERVED_VERSION in versions or 0 in versions:
        raise RuntimeError(f"bad list of versions: {[hex(version) for version in versions]}")


def run(task: Task, _rounds: list[dict]) -> None:
    family = socket.AF_INET6 if ":" in task.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect((task.address, task.port))
        for length in (8, 20, 200):
            destination, source = os.urandom(length), os.urandom(length)
            sock.settimeout(3)
            sock.send(initial(destination, source, 1200))
            check(sock.recv(65536), destination, source)
        # RFC 9000, section 14.1: a small datagram gets no Version Negotiation.
        sock.settimeout(0.5)
        sock.send(initial(os.urandom(8), os.urandom(8), 600))
        try:
            sock.recv(65536)
        except TimeoutError:
            pass
        else:
            raise RuntimeError("a 600-byte datagram was answered")


if __name__ == "__main__":
    drive(run)
