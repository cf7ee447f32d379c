"""Files served in a run. Their content is seeded, so every body has an expected hash."""

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

SEED = 20261121
MEGABYTE = 1_000_000
SMALL_FILES = 200


@dataclass(frozen=True)
class Site:
    root: Path
    hashes: dict[str, str]
    """Path → SHA-256 of the body."""
    sizes: dict[str, int]
    """Path → bytes of the body."""


def small(index: int) -> str:
    return f"/small/{index:03}.bin"


SMALL_PATHS = [small(index) for index in range(SMALL_FILES)]


def make_site(root: Path) -> Site:
    generator = random.Random(SEED)
    bodies = {"/1k.bin": 1_000, "/100k.bin": 100_000, "/1m.bin": MEGABYTE, "/10m.bin": 10 * MEGABYTE}
    bodies |= {path: generator.randint(1_000, 5_000) for path in SMALL_PATHS}
    hashes = {}
    for path, size in bodies.items():
        content = generator.randbytes(size)
        hashes[path] = hashlib.sha256(content).hexdigest()
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    # The link element prevents a request for an icon.
    (root / "page.html").write_text('<!doctype html><title>interop</title><link rel="icon" href="data:,">\n')
    return Site(root, hashes, bodies)
