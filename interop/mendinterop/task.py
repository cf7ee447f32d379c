"""The contract between the runner and a client program.

A client gets one task as JSON in its first argument and prints one report as a JSON line on stdout:
`{"rounds": [{"alpn", "resumed", "early_data", "responses": [{"path", "status", "bytes", "sha256"}]}], "error": null}`.
Values that the client's stack does not expose are null or absent. The Rust and Go clients have the same structures.
"""

import hashlib
import json
import sys
import traceback
from dataclasses import asdict, dataclass, field, fields


@dataclass
class Task:
    """Connections to open one after the other, and the requests of each."""

    host: str
    """Server name for SNI, certificate check and `:authority`."""
    address: str
    """Address of the server, or of the link in front of it."""
    port: int
    """UDP port."""
    ca: str
    """PEM file with the only trusted certificate authority."""
    spki: str
    """Base64 SHA-256 of the leaf's public key, for clients that pin instead of trusting a CA."""
    rounds: list[list[str]] = field(default_factory=list)
    """Paths per connection, requested in parallel."""
    early_data: bool = False
    """Send the requests of the second and later rounds in 0-RTT."""
    chacha20: bool = False
    """Offer TLS_CHACHA20_POLY1305_SHA256 only."""
    key_update: bool = False
    """Update keys after the first path of a round, before the others."""
    unknown_version: bool = False
    """Offer a version first that the server does not support."""
    linger_ms: int = 0
    """Milliseconds to stay connected after the last response, so that tickets and tokens arrive."""
    idle_timeout_ms: int = 0
    """The server's idle time-out. Clients that cannot close a connection wait for it."""

    def url(self, path: str) -> str:
        return f"https://{self.host}:{self.port}{path}"

    def batches(self, paths: list[str]) -> list[list[str]]:
        """Splits paths into batches of parallel requests, with a key update between two batches."""
        if self.key_update and len(paths) > 1:
            return [paths[:1], paths[1:]]
        return [paths]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Task":
        known = {entry.name for entry in fields(cls)}
        return cls(**{key: value for key, value in json.loads(text).items() if key in known})


def response(path: str, status: int | None, body: bytes) -> dict:
    """Returns the report's entry for a response."""
    return {"path": path, "status": status, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


def drive(run) -> None:
    """Main function of a driver. `run(task, rounds)` appends to `rounds`; the report is printed even if it raises."""
    task = Task.from_json(sys.argv[1])
    rounds: list[dict] = []
    error = None
    try:
        run(task, rounds)
    except Exception as failure:  # Every failure of a client belongs into the report.
        traceback.print_exc(file=sys.stderr)
        error = f"{type(failure).__name__}: {failure}"
    print(json.dumps({"rounds": rounds, "error": error}), flush=True)
