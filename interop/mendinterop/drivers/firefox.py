"""Unmodified Firefox ESR, headless, driven over Marionette (length-prefixed JSON on TCP). The profile trusts the
test CA, resolves every name to the address under test, and maps the origin to HTTP/3."""

import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from mendinterop.drivers.browser import run_rounds
from mendinterop.task import Task, drive


def preferences(task: Task) -> dict:
    return {
        "network.http.http3.enable": True,
        "network.http.http3.alt-svc-mapping-for-testing": f"{task.host};h3=:{task.port}",
        "network.http.http3.force-use-alt-svc-mapping-for-testing": True,
        # By default Firefox disables HTTP/3 if it finds test CAs.
        "network.http.http3.disable_when_third_party_roots_found": False,
        "network.http.speculative-parallel-limit": 0,
        "network.dns.forceResolve": task.address,
        "network.dns.disableIPv6": ":" not in task.address,
        "network.proxy.type": 0,
        "network.trr.mode": 5,
        "marionette.port": 0,
        # No requests of the browser itself.
        "network.captive-portal-service.enabled": False,
        "network.connectivity-service.enabled": False,
        "app.update.enabled": False,
        "app.normandy.enabled": False,
        "browser.safebrowsing.malware.enabled": False,
        "browser.safebrowsing.phishing.enabled": False,
        "browser.shell.checkDefaultBrowser": False,
        "browser.startup.homepage_override.mstone": "ignore",
        "browser.startup.page": 0,
        "datareporting.policy.dataSubmissionEnabled": False,
        "extensions.update.enabled": False,
        "extensions.getAddons.cache.enabled": False,
        "security.OCSP.enabled": 0,
        "services.settings.server": "data:,",
        "toolkit.telemetry.server": "data:,",
        "toolkit.telemetry.unified": False,
    }


class Marionette:
    """A Marionette session."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=150)
        self.buffer = b""
        self.next_id = 0
        self.receive()
        self.call("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {"pageLoadStrategy": "normal"}}})
        self.call("WebDriver:SetTimeouts", {"script": 140_000, "pageLoad": 60_000})

    def receive(self):
        while b":" not in self.buffer:
            self.read()
        length, _, self.buffer = self.buffer.partition(b":")
        while len(self.buffer) < int(length):
            self.read()
        text, self.buffer = self.buffer[: int(length)], self.buffer[int(length) :]
        return json.loads(text)

    def read(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("firefox closed the Marionette connection")
        self.buffer += data

    def call(self, command: str, params: dict):
        self.next_id += 1
        text = json.dumps([0, self.next_id, command, params]).encode()
        self.socket.sendall(f"{len(text)}:".encode() + text)
        _, _, error, result = self.receive()
        if error:
            raise RuntimeError(f"{command}: {error.get('message', error)}")
        return result

    def open_page(self, url: str) -> None:
        self.call("WebDriver:Navigate", {"url": url})

    def evaluate(self, expression: str):
        script = f"const done = arguments[0]; ({expression}).then((value) => done({{value}}), (error) => done({{error: String(error)}}));"
        result = self.call("WebDriver:ExecuteAsyncScript", {"script": script, "args": []})["value"]
        if "error" in result:
            raise RuntimeError(result["error"])
        return result["value"]


def marionette_port(profile: Path, browser: subprocess.Popen) -> int:
    port_file = profile / "MarionetteActivePort"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and browser.poll() is None:
        text = port_file.read_text().strip() if port_file.exists() else ""
        if text:
            return int(text)
        time.sleep(0.05)
    raise RuntimeError("firefox opened no Marionette port")


def run(task: Task, rounds: list[dict]) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile = Path(folder)
        lines = [f"user_pref({json.dumps(key)}, {json.dumps(value)});" for key, value in preferences(task).items()]
        (profile / "user.js").write_text("\n".join(lines) + "\n")
        store = f"sql:{profile}"
        subprocess.run(["certutil", "-N", "-d", store, "--empty-password"], check=True)
        subprocess.run(["certutil", "-A", "-d", store, "-n", "interop", "-t", "C,,", "-i", task.ca], check=True)
        browser = subprocess.Popen(
            ["firefox-esr", "--headless", "--no-remote", "--marionette", "--profile", str(profile), "about:blank"],
            stdout=subprocess.DEVNULL,
            env=environment(profile),
        )
        try:
            session = Marionette(marionette_port(profile, browser))
            run_rounds(task, rounds, session.open_page, session.evaluate)
        finally:
            browser.terminate()
            try:
                browser.wait(10)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()


def environment(profile: Path) -> dict:
    """Returns the environment with a separate home directory, so that the user's profile is not touched."""
    return {**os.environ, "HOME": str(profile), "MOZ_HEADLESS": "1", "MOZ_CRASHREPORTER_DISABLE": "1"}


if __name__ == "__main__":
    drive(run)
