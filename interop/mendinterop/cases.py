"""Cases: the client's task, the settings of server and link, and the conditions checked at both ends."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from mendinterop.site import SMALL_PATHS, Site
from mendinterop.wiretap import Arrival


@dataclass
class Outcome:
    """Observations of both ends after a case."""

    report: dict
    connections: list[dict]
    """The server's log of closed connections."""
    seconds: float
    site: Site
    arrivals: list[Arrival] = field(default_factory=list)
    """Datagrams to the client, recorded by the wiretap."""

    def responses(self) -> list[dict]:
        return [response for entry in self.report["rounds"] for response in entry["responses"]]

    def any(self, key: str, wanted) -> bool:
        """Returns whether the server logged a connection whose `key` satisfies `wanted`, a value or a predicate."""
        satisfied = wanted if callable(wanted) else lambda value: value == wanted
        return any(key in record and satisfied(record[key]) for record in self.connections)


Check = Callable[[Outcome], str | None]
"""Returns the failure, or None."""


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    rounds: tuple[tuple[str, ...], ...] = (("/1k.bin",),)
    quic: dict = field(default_factory=dict)
    """Keys of the server's `[quic]` section."""
    task: dict = field(default_factory=dict)
    """Fields of the client's task."""
    link: tuple[str, ...] = ()
    """Options of `mendcast link`; if empty, the client connects to the server directly."""
    wiretap: bool = False
    ipv6: bool = False
    startup: dict = field(default_factory=dict)
    """Keys of the server's `[startup]` section."""
    check: Check = lambda outcome: None
    found: Callable[[Outcome], str] = lambda outcome: ""
    """Text in the matrix instead of `ok`, if not empty."""
    seconds: float = 40
    """Time limit of the client, without the start-up of browsers."""


def expect(key: str, wanted, otherwise: str) -> Check:
    """Requires at least one logged connection with this value."""
    return lambda outcome: None if outcome.any(key, wanted) else otherwise


def few_connections(outcome: Outcome) -> str | None:
    # libcurl opens a second connection when the server's stream limit delays a request.
    total = sum(outcome.site.sizes[path] for path in SMALL_PATHS)
    largest = sorted((record.get("bytes_sent", 0) for record in outcome.connections), reverse=True)[:2]
    return None if sum(largest) >= total else f"the responses were spread over {len(outcome.connections)} connections"


def retried(outcome: Outcome) -> str | None:
    served = [record for record in outcome.connections if record.get("bytes_sent", 0) >= 1_000]
    return None if served and all(record.get("retry") for record in served) else "a connection was served without Retry"


def slow(outcome: Outcome) -> str | None:
    if outcome.seconds < 3.0:
        return f"done after {outcome.seconds:.1f} s: two round trips of 1.5 s cannot have happened"
    return None if outcome.any("handshake_ms", lambda value: value >= 1_400) else "the server measured a fast handshake"


def interrupted(outcome: Outcome) -> str | None:
    # Datagrams queued in the link at the start of the blackhole still arrive.
    silence = max((later.at - earlier.at for earlier, later in pairwise(outcome.arrivals)), default=0)
    return None if silence >= 1.5 else f"the longest silence was {silence:.1f} s: the blackhole missed the transfer"


def negotiated(outcome: Outcome) -> str | None:
    # RFC 8999, section 6: a long header with version 0.
    negotiations = [arrival for arrival in outcome.arrivals if arrival.has_long_header and arrival.version == bytes(4)]
    return None if negotiations else "no Version Negotiation packet passed"


COOKIE_PATH = "/100k.bin"
COOKIE_RTT = 0.080


def returning(outcome: Outcome) -> dict:
    """Returns the connection whose cookie set the initial window, or an empty dict."""
    return next((
        record for record in outcome.connections
        if record.get("start_cookie") in ("token", "ticket") and record.get("start_window")
    ), {})


def first_flight(arrivals: list[Arrival]) -> int:
    """Returns the bytes received within 0.9 round trips after the beginning of the last connection's first flight.
    The server sent them before any acknowledgement of its first datagram arrived. A single full datagram is a probe of
    the path's MTU, which leaves before a request that was lost and sent again."""
    handshakes = [arrival.at for arrival in arrivals if arrival.has_long_header]
    # Connections are more than a second apart.
    begin = max((at for before, at in pairwise([float("-inf"), *handshakes]) if at - before > 1), default=0)
    full = [arrival.at for arrival in arrivals if arrival.at >= begin and not arrival.has_long_header and arrival.size >= 1_000]
    start = next((at for at, after in pairwise(full) if after - at < 0.5 * COOKIE_RTT), 0)
    return sum(arrival.size for arrival in arrivals if start <= arrival.at < start + 0.9 * COOKIE_RTT)


def cookie_set_the_first_flight(outcome: Outcome) -> str | None:
    record = returning(outcome)
    if not record:
        return "no connection's cookie set an initial window"
    # 0.7: the window is paced over a whole round trip, and the link loses 3 %.
    expected = min(record["start_window"], outcome.site.sizes[COOKIE_PATH])
    flight = first_flight(outcome.arrivals)
    return None if 0.7 * expected <= flight <= 1.2 * expected else f"the first flight had {flight} bytes instead of {expected}"


def carrier(outcome: Outcome) -> str:
    """Returns the cookie's carrier, whether the client used 0-RTT, and the size of the first flight."""
    record = returning(outcome)
    early = ", 0-RTT" if record.get("early_data") else ""
    return f"{record['start_cookie']}{early}, {first_flight(outcome.arrivals) / 1000:.0f} kB"


TWICE = (("/1k.bin",), ("/100k.bin",))
# Browsers open a new connection only after the idle time-out of the old one. The server delays tickets by up to a second.
RECONNECT = {"linger_ms": 1_500, "idle_timeout_ms": 3_000}
SHORT_IDLE = {"idle_timeout": "3s"}

CASES = [
    Case("handshake", "1 KB over one connection", check=expect("alpn", lambda value: value in ("h3", "hq-interop"), "no connection logged")),
    Case("transfer", "10 MB, SHA-256", (("/10m.bin",),)),
    Case("multiplex", "200 parallel requests of 1 to 5 KB, on at most two connections", (tuple(SMALL_PATHS),), check=few_connections),
    Case(
        "resumption", "second connection resumes the TLS session", TWICE, {"early_data": False, **SHORT_IDLE}, RECONNECT,
        check=expect("resumed", True, "the server resumed no session"),
    ),
    Case(
        "zerortt", "second connection's requests in accepted 0-RTT", TWICE, SHORT_IDLE, {"early_data": True, **RECONNECT},
        check=expect("early_data", True, "the server accepted no 0-RTT"),
    ),
    Case("retry", "server validates the address with Retry", quic={"retry": "always"}, check=retried),
    Case(
        "keyupdate", "client updates keys during the connection", (("/1m.bin", "/10m.bin"),), task={"key_update": True},
        check=expect("key_updates", lambda value: value >= 1, "the server saw no key update"),
    ),
    Case(
        "rebinding", "client's address changes every second during a 10 MB transfer", (("/10m.bin",),),
        link=("--rate", "20mbps", "--rtt", "20ms", "--rebind-every", "1s"),
        check=expect("migrations", lambda value: value >= 1, "the server saw no new address"),
    ),
    Case(
        "chacha20", "client offers TLS_CHACHA20_POLY1305_SHA256 only", (("/1m.bin",),), task={"chacha20": True},
        check=expect("cipher", lambda value: "CHACHA20" in str(value).upper(), "the server used another cipher"),
    ),
    Case(
        "loss10", "1 MB with 10 % loss both ways", (("/1m.bin",),), link=("--rtt", "30ms", "--loss", "10%", "--seed", "7"),
        check=expect("packets_lost", lambda value: value >= 10, "the server saw no loss"), seconds=60,
    ),
    Case("longrtt", "100 KB with a round-trip time of 1,500 ms", (("/100k.bin",),), link=("--rtt", "1500ms"), check=slow, seconds=60),
    Case(
        "blackhole", "2 s of silence during a 1 MB transfer", (("/1m.bin",),),
        link=("--rate", "2mbps", "--rtt", "20ms", "--blackhole", "1s,2s"), wiretap=True, check=interrupted, seconds=60,
    ),
    Case("versionnegotiation", "client offers an unknown version first", task={"unknown_version": True}, wiretap=True,
         check=negotiated),
    Case("ipv6", "1 MB over ::1", (("/1m.bin",),), ipv6=True),
    Case(
        "token", "client returns the NEW_TOKEN token on its next connection", TWICE, SHORT_IDLE, RECONNECT,
        check=expect("token", "new_token", "no connection returned a NEW_TOKEN token"),
    ),
    Case(
        "cookie", "path state of the first connection sets window and rate of the second", (("/1m.bin",), (COOKIE_PATH,)),
        SHORT_IDLE, {"early_data": True, **RECONNECT}, wiretap=True, link=("--rtt", "80ms", "--rate", "20mbps", "--loss", "3%", "--seed", "5"),
        startup={"mode": "wira", "networks": 0}, check=cookie_set_the_first_flight, found=carrier, seconds=60,
    ),
]

QUICK = ["handshake", "multiplex", "resumption", "zerortt", "retry", "loss10", "ipv6"]
