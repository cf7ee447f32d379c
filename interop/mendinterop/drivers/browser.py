"""Code shared by both browsers: the JavaScript that fetches and hashes, and the order of rounds. A browser cannot close a
QUIC connection on demand, so a new round waits for the server's short idle time-out."""

import json
import time

from mendinterop.task import Task

FETCH = """
(async (paths) => Promise.all(paths.map(async (path) => {
  const answer = await fetch(path, {cache: "no-store"});
  const body = await answer.arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const timing = performance.getEntriesByName(new URL(path, location.href).href).pop();
  return {path, status: answer.status, bytes: body.byteLength, sha256: hex, protocol: timing ? timing.nextHopProtocol : null};
})))
"""

PAGE = "/page.html"


def run_rounds(task: Task, rounds: list[dict], open_page, evaluate) -> None:
    """Runs all rounds. `open_page(url)` loads the page whose origin the requests use; `evaluate(expression)` awaits a promise."""
    for index, paths in enumerate(task.rounds):
        if index == 0:
            open_page(task.url(PAGE))
        else:
            time.sleep(task.idle_timeout_ms / 1000 + 1)
        responses = evaluate(f"performance.clearResourceTimings(), performance.setResourceTimingBufferSize(1000), {FETCH}({json.dumps(paths)})")
        protocols = {entry.pop("protocol") for entry in responses}
        if protocols != {"h3"}:
            raise RuntimeError(f"responses came over {protocols}")
        rounds.append({"alpn": "h3", "responses": responses})
        time.sleep(task.linger_ms / 1000)
