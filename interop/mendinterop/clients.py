"""Clients: installation, command, and unsupported cases with reasons."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mendinterop.cases import CASES

INTEROP = Path(__file__).resolve().parent.parent
VENV = INTEROP / ".cache" / "venv"
USER_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mendcast" / "interop"


class Unavailable(Exception):
    """A client cannot be installed. One line names the missing part."""


@dataclass(frozen=True)
class Client:
    name: str
    stack: str
    prepare: Callable[[], tuple[list[str], str]]
    """Installs or builds the client. Returns its command, to which the task is appended, and its version. Raises Unavailable."""
    cannot: dict[str, str] = field(default_factory=dict)
    """Unsupported case → reason."""
    start_up: float = 0
    """Seconds allowed before the first connection."""
    requests: bool = True
    """Whether it requests the paths of the task."""


def target_dir() -> Path:
    """Returns the build directory of third-party clients. It is outside the clone, because they rarely change."""
    return Path(os.environ.get("INTEROP_TARGET_DIR") or USER_CACHE)


def quiet(command: list[str], what: str, **options) -> str:
    """Runs an installation step and returns its output. Raises Unavailable with the last line of its errors."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    except FileNotFoundError:
        raise Unavailable(f"{what}: {command[0]} is missing") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{what}: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return done.stdout.strip()


def debian(program: str, *packages: str) -> None:
    """Installs Debian packages unless `program` exists."""
    if not shutil.which(program):
        install(program, *packages)


def install(missing: str, *packages: str) -> None:
    """Installs Debian packages that provide something missing."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Unavailable(f"{missing} is missing (Debian: apt-get install {' '.join(packages)})")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet(["apt-get", "update", "-q"], "apt-get update", env=environment)
    quiet(["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], "apt-get install", env=environment)


def debian_version(package: str) -> str:
    if not shutil.which("dpkg-query"):
        return "unknown"
    return quiet(["dpkg-query", "-W", "-f", "${Version}", package], package)


def venv_python() -> str:
    """Returns the interpreter of a virtual environment with the pinned Python clients."""
    python = VENV / "bin" / "python"
    requirements = INTEROP / "requirements.txt"
    stamp = VENV / "requirements.installed"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        quiet([sys.executable, "-m", "venv", str(VENV)], "python venv")
        quiet([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)], "pip install")
        stamp.write_text(requirements.read_text())
    return str(python)


def driver(module: str) -> list[str]:
    return [venv_python(), "-m", f"mendinterop.drivers.{module}"]


def python_package(module: str, package: str) -> tuple[list[str], str]:
    command = driver(module)
    version = quiet([command[0], "-c", f"import importlib.metadata as m; print(m.version('{package}'))"], package)
    return command, version


def rust(program: str, package: str) -> tuple[list[str], str]:
    folder = INTEROP / "clients" / "rust"
    target = target_dir() / "rust"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    quiet(["cargo", "build", "--release", "--locked", "-p", program], f"cargo build {program}", cwd=folder, env=environment)
    identity = quiet(["cargo", "pkgid", "--locked", package], "cargo pkgid", cwd=folder, env=environment)
    return [str(target / "release" / program)], identity.rpartition("@")[2]


def quiche() -> tuple[list[str], str]:
    # BoringSSL's bindings are generated with libclang and its headers.
    if not any(Path("/usr/lib").glob("llvm-*/lib/libclang.so*")):
        install("libclang", "libclang-dev")
    debian("cmake", "cmake")
    return rust("interop-quiche", "quiche")


def quic_go() -> tuple[list[str], str]:
    folder = INTEROP / "clients" / "quic-go"
    binary = target_dir() / "quic-go" / "interop-quic-go"
    quiet(["go", "build", "-o", str(binary), "."], "go build", cwd=folder)
    version = quiet(["go", "list", "-m", "-f", "{{.Version}}", "github.com/quic-go/quic-go"], "go list", cwd=folder)
    return [str(binary)], version.removeprefix("v")


def chromium() -> tuple[list[str], str]:
    debian("chromium", "chromium")
    return driver("chromium"), debian_version("chromium")


def firefox() -> tuple[list[str], str]:
    debian("firefox-esr", "firefox-esr")
    debian("certutil", "libnss3-tools")
    return driver("firefox"), debian_version("firefox-esr")


def gtlsclient() -> tuple[list[str], str]:
    debian("gtlsclient", "ngtcp2-client")
    return driver("gtlsclient"), debian_version("ngtcp2-client")


NO_KEY_UPDATE = "has no command for a key update"
NO_CIPHER_CHOICE = "has no setting for TLS 1.3 cipher suites"
NO_VERSION_CHOICE = "offers QUIC v1 only"
NO_TOKEN = "ignores NEW_TOKEN"

BROWSER = {"keyupdate": NO_KEY_UPDATE, "chacha20": NO_CIPHER_CHOICE, "versionnegotiation": NO_VERSION_CHOICE}

CLIENTS = [
    Client("chromium", "Chromium (Google quiche)", chromium, BROWSER, start_up=20),
    Client("firefox", "Firefox ESR (neqo)", firefox, BROWSER, start_up=30),
    Client(
        "curl_cffi", "libcurl (ngtcp2, BoringSSL)", lambda: python_package("curl_client", "curl_cffi"),
        {
            "zerortt": "libcurl sends no early data with BoringSSL", "token": NO_TOKEN, "keyupdate": NO_KEY_UPDATE,
            "chacha20": NO_CIPHER_CHOICE, "versionnegotiation": NO_VERSION_CHOICE,
        },
        start_up=2,
    ),
    Client("aioquic", "aioquic", lambda: python_package("aioquic_client", "aioquic"), start_up=2),
    Client(
        "gtlsclient", "ngtcp2 (GnuTLS)", gtlsclient,
        {"token": "release 0.12.1 cannot read the token file that it writes, not even with its own server"},
    ),
    Client("quic-go", "quic-go", quic_go, {"chacha20": NO_CIPHER_CHOICE}),
    Client("quinn", "quinn, h3", lambda: rust("interop-quinn", "quinn")),
    Client(
        "quiche", "Cloudflare quiche", quiche,
        {"keyupdate": NO_KEY_UPDATE, "chacha20": NO_CIPHER_CHOICE, "token": NO_TOKEN},
    ),
    Client(
        "s2n-quic", "s2n-quic (HTTP/0.9)", lambda: rust("interop-s2n", "s2n-quic"),
        {
            "cookie": "keeps neither ticket nor token", "resumption": "does not resume with the crate's TLS client", "zerortt": "no 0-RTT",
            "token": NO_TOKEN, "keyupdate": NO_KEY_UPDATE,
            "chacha20": NO_CIPHER_CHOICE, "versionnegotiation": NO_VERSION_CHOICE,
        },
    ),
    Client(
        "probe", "raw UDP", lambda: (driver("probe"), "-"),
        {case.name: "sends single datagrams" for case in CASES if case.name != "versionnegotiation"}, requests=False,
    ),
]

QUICK = ["chromium", "curl_cffi", "aioquic", "gtlsclient", "quinn"]
