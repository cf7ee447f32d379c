"""The matrix of clients and cases, for the terminal and for docs/develop/interop.md."""

import os
import platform
import subprocess
from datetime import date
from pathlib import Path

from mendinterop.cases import Case
from mendinterop.clients import Client
from mendinterop.runner import Result

MARKS = {"passed": "ok", "failed": "FAIL", "skipped": "skip"}
NOT_DONE = "·"


def rows(clients: list[Client], cases: list[Case], results: list[Result]) -> list[list[str]]:
    """Returns the headings, then a row per client."""
    verdicts = {(result.client, result.case): result.found or MARKS[result.verdict] for result in results}
    table = [["client", *(case.name for case in cases)]]
    for client in clients:
        cells = [verdicts.get((client.name, case.name), NOT_DONE) for case in cases]
        table.append([client.name, *cells])
    return table


def as_text(table: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table)


def as_markdown(table: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    lines.insert(1, "|" + "---|" * len(table[0]))
    return "\n".join(lines)


def closing_line(results: list[Result]) -> str:
    counts = {verdict: sum(result.verdict == verdict for result in results) for verdict in MARKS}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def machine() -> str:
    """Describes the machine without its name."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{os.cpu_count()} cores, {pages * size / 2**30:.0f} GiB, {platform.system()} {platform.release().split('-')[0]}, {platform.machine()}"


def commit(folder: Path) -> str:
    done = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def document(clients: list[Client], cases: list[Case], results: list[Result], versions: dict[str, str], command: str, folder: Path) -> str:
    failed = [result for result in results if result.verdict != "passed"]
    parts = [
        "# Interoperability",
        "Unmodified third-party clients against `mendcast edge` on loopback. This page is generated; do not edit it.",
        f"- Command: `{command}`\n- Commit: `{commit(folder)}`\n- Date: {date.today().isoformat()}\n- Machine: {machine()}\n"
        f"- Result: {closing_line(results)}",
        as_markdown(rows(clients, cases, results)),
        f"`{NOT_DONE}`: not supported by the client, for the reasons below.",
        "## Cases",
        as_markdown([["case", "what", "link"], *([case.name, case.what, f"`{' '.join(case.link)}`" if case.link else "direct"] for case in cases)]),
        "A case passes if every body has the right SHA-256 and the tested behaviour was observed: in the server's connection log, or for "
        "`versionnegotiation` and `blackhole` by a relay next to the client. `transfer` and `ipv6` check bodies only. `gtlsclient` neither "
        "checks certificates nor reports a status.",
        "## Clients",
        as_markdown([["client", "stack", "version"], *([client.name, client.stack, versions.get(client.name, "unavailable")] for client in clients)]),
        "## Unsupported cases",
        reasons(clients, cases),
    ]
    if failed:
        parts += ["## Failed or skipped", "\n".join(f"- {result.client}, {result.case}: {result.reason}" for result in failed)]
    return "\n\n".join(parts) + "\n"


def reasons(clients: list[Client], cases: list[Case]) -> str:
    """Returns one line per client and reason."""
    lines = []
    for client in clients:
        by_reason: dict[str, list[str]] = {}
        for case in cases:
            if case.name in client.cannot:
                by_reason.setdefault(client.cannot[case.name], []).append(case.name)
        lines += [f"- {client.name}, {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return "\n".join(lines)
