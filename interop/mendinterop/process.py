"""Child processes with a limited lifetime. Each runs in its own session, so that its process group can be ended."""

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

LISTENING = re.compile(r"listening on (\S+)")
ALIVE: set[subprocess.Popen] = set()
"""Leaders of the running process groups of this run."""


def spawn(command: list[str], **options) -> subprocess.Popen:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
    ALIVE.add(process)
    return process


def end_all_on_signals() -> None:
    """Ends all process groups on SIGINT and SIGTERM, because they do not receive the signals of the terminal."""

    def end(number, _frame) -> None:
        for process in list(ALIVE):
            kill_group(process)
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


class Background:
    """Starts a server and waits for `listening on ADDRESS` on its stderr, which goes to a file."""

    def __init__(self, command: list[str], log: Path, ready_within: float = 15):
        self.command = command
        self.log = log
        self.address: tuple[str, int] | None = None
        self.ready = threading.Event()
        self.process = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.output = b""
        self.readers = [threading.Thread(target=target, daemon=True) for target in (self.read_output, self.read_log)]
        for reader in self.readers:
            reader.start()
        self.ready.wait(ready_within)
        if self.address is None:
            self.stop()
            raise RuntimeError(f"{' '.join(command[:2])} did not start: {self.last_line()}")

    def read_output(self) -> None:
        self.output = self.process.stdout.read()

    def read_log(self) -> None:
        with open(self.log, "wb") as log:
            for line in self.process.stderr:
                log.write(line)
                log.flush()
                found = LISTENING.search(line.decode(errors="replace"))
                if found and self.address is None:
                    self.address = parse_address(found[1])
                    self.ready.set()
        self.ready.set()

    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return lines[-1] if lines else "no output"

    def stop(self, within: float = 10) -> None:
        """Sends SIGTERM, then kills the process group."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(within)
            except subprocess.TimeoutExpired:
                pass
        kill_group(self.process)
        for reader in self.readers:
            reader.join(5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def kill_group(process: subprocess.Popen) -> None:
    ALIVE.discard(process)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(5)


def run_bounded(command: list[str], environment: dict, log: Path, timeout: float) -> tuple[str, float]:
    """Runs a program for at most `timeout` seconds. Returns its standard output and its run time; stderr goes to `log`."""
    started = time.monotonic()
    with open(log, "wb") as stderr:
        process = spawn(command, stdout=subprocess.PIPE, stderr=stderr, env=environment)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"still running after {timeout:.0f} s") from None
        finally:
            kill_group(process)
    return output.decode(errors="replace"), time.monotonic() - started
