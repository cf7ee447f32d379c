"""The server under test and the link in front of it: one process each per case, each with its own configuration."""

import json
from pathlib import Path

from mendinterop.certificates import Certificates
from mendinterop.process import Background


def server_config(listen: str, certificates: Certificates, root: Path, connections: Path, quic: dict, startup: dict) -> str:
    """Returns the edge's configuration file. `quic` and `startup` hold the keys that a case sets in these sections."""
    sections = {
        "server": {
            "listen": listen,
            "certificate": str(certificates.chain),
            "key": str(certificates.key),
            "root": str(root),
        },
        "quic": {"retry": "never", "early_data": True, "hq_interop": True, **quic},
        "startup": startup,
        "log": {"connections": str(connections)},
        # Below `Background.stop`'s limit: clients that vanish do not acknowledge the GOAWAY, and the
        # server writes its record of an open connection when the drain ends.
        "drain": {"timeout": "5s"},
    }
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        # JSON strings, booleans and numbers are valid TOML values.
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def start_server(binary: Path, folder: Path, config: str) -> Background:
    file = folder / "edge.toml"
    file.write_text(config)
    return Background([str(binary), "edge", "--config", str(file)], folder / "server.log")


def start_link(binary: Path, folder: Path, to: tuple[str, int], options: list[str]) -> Background:
    host, port = to
    bracketed = f"[{host}]" if ":" in host else host
    command = [str(binary), "link", "--listen", f"{bracketed}:0", "--to", f"{bracketed}:{port}", "--json", *options]
    return Background(command, folder / "link.log")


def read_connections(file: Path) -> list[dict]:
    """Returns the log of closed connections, in the order of closing."""
    if not file.exists():
        return []
    records = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    return [record for record in records if record.get("event") == "connection_closed"]
