"""Runs each client and case with its own server process, log and time limit, and checks both ends."""

import json
import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mendinterop.cases import Case, Outcome
from mendinterop.certificates import HOST, Certificates, make_certificates
from mendinterop.clients import INTEROP, Client
from mendinterop.process import run_bounded
from mendinterop.server import read_connections, server_config, start_link, start_server
from mendinterop.site import Site, make_site
from mendinterop.task import Task
from mendinterop.wiretap import Wiretap


@dataclass(frozen=True)
class Result:
    client: str
    case: str
    verdict: str
    """`passed`, `failed` or `skipped`."""
    reason: str = ""
    seconds: float = 0
    found: str = ""
    """Text in the matrix instead of `ok`, if not empty."""


class Bench:
    """Shared state of a run: binary, certificates, site and log directory."""

    def __init__(self, binary: Path, logs: Path, scratch: Path):
        self.binary = binary
        self.logs = logs
        self.certificates: Certificates = make_certificates(scratch)
        self.site: Site = make_site(scratch / "www")

    def run(self, client: Client, command: list[str], case: Case) -> Result:
        folder = self.logs / f"{client.name}-{case.name}"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        try:
            outcome = self.perform(client, command, case, folder)
            problem = judge(client, case, outcome)
            seconds, found = outcome.seconds, "" if problem else case.found(outcome)
        except (RuntimeError, TimeoutError, OSError, ValueError) as failure:
            problem, seconds, found = str(failure) or type(failure).__name__, 0, ""
        return Result(client.name, case.name, "failed" if problem else "passed", problem or "", seconds, found)

    def perform(self, client: Client, command: list[str], case: Case, folder: Path) -> Outcome:
        connections = folder / "connections.jsonl"
        listen = "[::1]:0" if case.ipv6 else "127.0.0.1:0"
        config = server_config(listen, self.certificates, self.site.root, connections, case.quic, case.startup)
        with ExitStack() as stack:
            # The server ends last: on exit it logs the connections that are still open.
            server = stack.enter_context(start_server(self.binary, folder, config))
            address = server.address
            if case.link:
                address = stack.enter_context(start_link(self.binary, folder, address, list(case.link))).address
            tap = stack.enter_context(Wiretap(address)) if case.wiretap else None
            if tap:
                address = tap.address
            task = Task(
                HOST, address[0], address[1], str(self.certificates.ca), self.certificates.spki,
                [list(paths) for paths in case.rounds], **case.task,
            )
            environment = {**os.environ, "PYTHONPATH": str(INTEROP), "PYTHONUNBUFFERED": "1"}
            limit = case.seconds + client.start_up
            output, seconds = run_bounded([*command, task.to_json()], environment, folder / "client.log", limit)
            # The link still delivers the client's last packets while the server drains.
            server.stop()
        (folder / "report.json").write_text(output)
        lines = output.strip().splitlines()
        if not lines:
            raise RuntimeError("the client printed no report")
        report = json.loads(lines[-1])
        outcome = Outcome(report, read_connections(connections), seconds, self.site)
        if tap:
            outcome.arrivals = tap.arrivals
        return outcome


def judge(client: Client, case: Case, outcome: Outcome) -> str | None:
    """Returns the failure: the client's error, a wrong body, or the result of the case's check."""
    if outcome.report.get("error"):
        return f"client: {outcome.report['error']}"
    wanted = [path for paths in case.rounds for path in paths]
    return (client.requests and body_problem(outcome, wanted)) or case.check(outcome)


def body_problem(outcome: Outcome, wanted: list[str]) -> str | None:
    responses = outcome.responses()
    if sorted(entry["path"] for entry in responses) != sorted(wanted):
        return f"{len(responses)} responses for {len(wanted)} requests"
    for entry in responses:
        if entry["status"] not in (None, 200):
            return f"{entry['path']}: status {entry['status']}"
        if entry["sha256"] != outcome.site.hashes[entry["path"]]:
            return f"{entry['path']}: {entry['bytes']} bytes with another hash"
    return None


def open_bench(stack: ExitStack, binary: Path) -> Bench:
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interop-")))
    return Bench(binary, INTEROP / ".cache" / "logs", scratch)
