"""HTTP/3 client of ngtcp2 (GnuTLS), an unmodified distribution package. It writes bodies to files, and tickets, transport
parameters and tokens to files for the next round. It neither checks certificates nor reports a status."""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mendinterop.task import Task, drive, response

TLS13 = "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:"
RESERVED_VERSION = "0x1a2a3a4a"


def run_rounds(task: Task, rounds: list[dict]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for index, paths in enumerate(task.rounds):
            bodies = Path(folder) / f"round{index}"
            bodies.mkdir()
            run_round(task, Path(folder), bodies, paths)
            responses = [response(path, None, (bodies / path.rpartition("/")[2]).read_bytes()) for path in paths]
            rounds.append({"alpn": "h3", "responses": responses})


def run_round(task: Task, folder: Path, bodies: Path, paths: list[str]) -> None:
    command = ["gtlsclient", "--no-quic-dump", "--no-http-dump", f"--download={bodies}", f"--sni={task.host}"]
    command += [f"--session-file={folder / 'session'}", f"--token-file={folder / 'token'}"]
    if task.early_data:
        command.append(f"--tp-file={folder / 'parameters'}")
    else:
        command.append("--disable-early-data")
    if task.chacha20:
        command.append(f"--ciphers={TLS13}+CHACHA20-POLY1305")
    if task.key_update:
        command.append("--key-update=20ms")
    if task.unknown_version:
        command += [f"--version={RESERVED_VERSION}", "--preferred-versions=v1"]
    if not task.linger_ms:
        command.append("--exit-on-all-streams-close")
    command += [task.address, str(task.port), *(task.url(path) for path in paths)]
    with open(folder / "log", "w+") as log:
        client = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            if task.linger_ms:
                wait_for_streams(client, folder / "log", len(paths))
                time.sleep(task.linger_ms / 1000)
                client.send_signal(signal.SIGINT)
            code = client.wait()
        finally:
            client.kill()
            log.seek(0)
            sys.stderr.write(log.read()[-20000:])
    if code != 0:
        raise RuntimeError(f"gtlsclient ended with {code}")


def wait_for_streams(client: subprocess.Popen, log: Path, streams: int) -> None:
    """Waits until `streams` request streams are closed, or the client has ended."""
    while client.poll() is None and log.read_text(errors="replace").count("HTTP stream") < streams:
        time.sleep(0.05)


if __name__ == "__main__":
    drive(run_rounds)
