"""Command line of `interop/run`: selects and runs clients and cases, prints the matrix and the totals."""

import argparse
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from mendinterop.cases import CASES
from mendinterop.cases import QUICK as QUICK_CASES
from mendinterop.clients import CLIENTS, INTEROP, Client, Unavailable
from mendinterop.clients import QUICK as QUICK_CLIENTS
from mendinterop.matrix import MARKS, as_text, closing_line, document, rows
from mendinterop.process import end_all_on_signals
from mendinterop.runner import Bench, Result, open_bench

DOCUMENT = INTEROP.parent / "docs" / "develop" / "interop.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="interop/run", description="Tests real QUIC clients against the real server.")
    parser.add_argument("--bin", type=Path, required=True, help="the mendcast binary")
    parser.add_argument("--quick", action="store_true", help="run the short set: " + ", ".join(QUICK_CLIENTS))
    parser.add_argument("--client", nargs="+", default=[], metavar="NAME", choices=[client.name for client in CLIENTS])
    parser.add_argument("--case", nargs="+", default=[], metavar="NAME", choices=[case.name for case in CASES])
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="concurrent cases (default 1)")
    parser.add_argument("--write-docs", action="store_true", help="write docs/develop/interop.md")
    return parser.parse_args()


def choose(everything: list, named: list[str], quick: list[str] | None) -> list:
    wanted = named or quick
    return [entry for entry in everything if wanted is None or entry.name in wanted]


def prepare(clients: list[Client], named: list[str]) -> tuple[dict[str, tuple[list[str], str]], dict[str, str]]:
    """Returns client → (command, version), and client → reason why it is unavailable."""
    ready, missing = {}, {}
    for client in clients:
        try:
            ready[client.name] = client.prepare()
            print(f"{client.name}: {ready[client.name][1]}", file=sys.stderr)
        except Unavailable as why:
            missing[client.name] = str(why)
            print(f"{client.name}: unavailable: {why}", file=sys.stderr)
    return ready, missing


def show(result: Result) -> None:
    reason = f": {result.reason}" if result.reason else ""
    print(f"{MARKS[result.verdict]:4} {result.client} {result.case} {result.seconds:.1f} s{reason}", flush=True)


def main() -> int:
    options = arguments()
    end_all_on_signals()
    clients = choose(CLIENTS, options.client, QUICK_CLIENTS if options.quick else None)
    cases = choose(CASES, options.case, QUICK_CASES if options.quick else None)
    binary = options.bin.resolve()
    if not binary.is_file():
        print(f"interop/run: no such binary: {options.bin}", file=sys.stderr)
        return 1
    ready, missing = prepare(clients, options.client)
    results: list[Result] = []
    with ExitStack() as stack:
        bench: Bench = open_bench(stack, binary)
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=max(1, options.jobs)))
        futures = []
        for client in clients:
            for case in cases:
                if case.name in client.cannot:
                    continue
                if client.name in missing:
                    # An unavailable client fails if it was requested by name.
                    verdict = "failed" if client.name in options.client else "skipped"
                    results.append(Result(client.name, case.name, verdict, missing[client.name]))
                else:
                    futures.append(pool.submit(bench.run, client, ready[client.name][0], case))
        for future in futures:
            results.append(future.result())
            show(results[-1])
    print()
    print(as_text(rows(clients, cases, results)))
    if options.write_docs:
        versions = {name: version for name, (_, version) in ready.items()}
        # The page omits the path of the binary.
        words = [options.bin.name if word == str(options.bin) else word for word in sys.argv[1:]]
        command = "interop/run " + shlex.join(words)
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(document(clients, cases, results, versions, command, INTEROP))
    print()
    print(closing_line(results))
    passed = any(result.verdict == "passed" for result in results)
    return 0 if passed and not any(result.verdict == "failed" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
