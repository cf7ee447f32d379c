"""HTTP/3 client on unmodified aioquic. For version negotiation it offers a reserved version (RFC 9000, section 15) first.
The driver passes tickets and tokens from round to round, because aioquic leaves both to the application."""

import asyncio

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite

from mendinterop.task import Task, drive, response

RESERVED_VERSION = 0x1A2A3A4A


class Client(QuicConnectionProtocol):
    """Maximum concurrent requests on a connection."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.pending: dict[int, dict] = {}

    async def get(self, task: Task, path: str) -> dict:
        stream = self._quic.get_next_available_stream_id()
        entry = {"status": None, "body": bytearray(), "done": asyncio.get_running_loop().create_future()}
        self.pending[stream] = entry
        authority = f"{task.host}:{task.port}".encode()
        headers = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", authority), (b":path", path.encode())]
        self.http.send_headers(stream, headers, end_stream=True)
        self.transmit()
        await entry["done"]
        return response(path, entry["status"], bytes(entry["body"]))

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            for entry in self.pending.values():
                fail(entry, f"connection closed: {event.error_code:#x} {event.reason_phrase}")
        elif isinstance(event, StreamReset) and event.stream_id in self.pending:
            fail(self.pending[event.stream_id], f"stream reset: {event.error_code:#x}")
        for http_event in self.http.handle_event(event):
            entry = self.pending.get(http_event.stream_id)
            if entry is None:
                continue
            if isinstance(http_event, HeadersReceived):
                entry["status"] = int(dict(http_event.headers).get(b":status", entry["status"]))
            elif isinstance(http_event, DataReceived):
                entry["body"] += http_event.data
            if http_event.stream_ended and not entry["done"].done():
                entry["done"].set_result(None)


def fail(entry: dict, why: str) -> None:
    if not entry["done"].done():
        entry["done"].set_exception(ConnectionError(why))


async def run_rounds(task: Task, rounds: list[dict]) -> None:
    ticket = None
    token = b""

    def keep_ticket(new) -> None:
        nonlocal ticket
        ticket = new

    def keep_token(new: bytes) -> None:
        nonlocal token
        token = new

    for index, paths in enumerate(task.rounds):
        configuration = QuicConfiguration(
            is_client=True, alpn_protocols=H3_ALPN, server_name=task.host, cafile=task.ca, session_ticket=ticket, token=token
        )
        configuration.supported_versions = [QuicProtocolVersion.VERSION_1]
        if task.unknown_version:
            configuration.supported_versions.insert(0, RESERVED_VERSION)
        if task.chacha20:
            configuration.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
        early = task.early_data and index > 0
        if early and ticket is None:
            raise RuntimeError("no ticket for 0-RTT")
        async with connect(
            task.address,
            task.port,
            configuration=configuration,
            create_protocol=Client,
            session_ticket_handler=keep_ticket,
            token_handler=keep_token,
            wait_connected=not early,
        ) as client:
            responses = []
            for number, batch in enumerate(task.batches(paths)):
                if number > 0:
                    client.request_key_update()
                responses += await asyncio.gather(*(client.get(task, path) for path in batch))
            tls = client._quic.tls
            rounds.append(
                {"alpn": tls.alpn_negotiated, "resumed": tls.session_resumed, "early_data": tls.early_data_accepted, "responses": responses}
            )
            await asyncio.sleep(task.linger_ms / 1000)


if __name__ == "__main__":
    drive(lambda task, rounds: asyncio.run(run_rounds(task, rounds)))
