"""Unmodified Chromium, headless, driven over its DevTools protocol. The page's origin is forced to QUIC and mapped to the
address under test; the leaf's public key is pinned."""

import json
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import websocket

from mendinterop.drivers.browser import run_rounds
from mendinterop.task import Task, drive


class DevTools:
    """DevTools session of a page."""

    def __init__(self, url: str):
        self.socket = websocket.create_connection(url, timeout=150, suppress_origin=True)
        self.next_id = 0

    def call(self, method: str, **params) -> dict:
        self.next_id += 1
        self.socket.send(json.dumps({"id": self.next_id, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.next_id:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def open_page(self, url: str) -> None:
        result = self.call("Page.navigate", url=url)
        if result.get("errorText"):
            raise RuntimeError(f"{url}: {result['errorText']}")
        while self.evaluate("Promise.resolve(document.readyState)") != "complete":
            time.sleep(0.05)

    def evaluate(self, expression: str):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"]["value"]


def page_url(profile: Path, browser: subprocess.Popen) -> str:
    """Waits for the port that Chromium writes into its profile, and returns the debugger URL of the first page."""
    port_file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and browser.poll() is None:
        lines = port_file.read_text().splitlines() if port_file.exists() else []
        if len(lines) == 2:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://127.0.0.1:{lines[0]}/json/list", timeout=10) as answer:
                pages = [entry for entry in json.load(answer) if entry["type"] == "page"]
            if pages:
                return pages[0]["webSocketDebuggerUrl"]
        time.sleep(0.05)
    raise RuntimeError("chromium opened no DevTools page")


def run(task: Task, rounds: list[dict]) -> None:
    address = f"[{task.address}]" if ":" in task.address else task.address
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile = Path(folder)
        browser = subprocess.Popen(
            [
                "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
                "--disable-extensions", "--no-proxy-server", "--remote-debugging-port=0", f"--user-data-dir={profile}",
                f"--origin-to-force-quic-on={task.host}:{task.port}",
                f"--host-resolver-rules=MAP {task.host} {address}, MAP * ^NOTFOUND",
                f"--ignore-certificate-errors-spki-list={task.spki}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
        )
        try:
            tools = DevTools(page_url(profile, browser))
            run_rounds(task, rounds, tools.open_page, tools.evaluate)
        finally:
            browser.terminate()
            try:
                browser.wait(10)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()


if __name__ == "__main__":
    drive(run)
