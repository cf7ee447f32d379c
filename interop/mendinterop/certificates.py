"""A certificate authority and a leaf certificate for one run, created with `openssl`: ECDSA P-256, valid for a week."""

import base64
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

HOST = "edge.test"


@dataclass(frozen=True)
class Certificates:
    ca: Path
    chain: Path
    key: Path
    spki: str
    """Base64 SHA-256 of the leaf's SubjectPublicKeyInfo."""


def openssl(*arguments: str) -> bytes:
    return subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


def make_certificates(folder: Path) -> Certificates:
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    leaf, key, request = folder / "leaf.pem", folder / "leaf.key", folder / "leaf.csr"
    extensions = folder / "leaf.ext"
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(
        "req", "-x509", *new_key, "-keyout", str(ca_key), "-out", str(ca), "-days", "7", "-subj", "/CN=interop CA",
        "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )
    openssl("req", "-new", *new_key, "-keyout", str(key), "-out", str(request), "-subj", f"/CN={HOST}")
    extensions.write_text(
        f"subjectAltName=DNS:{HOST},IP:127.0.0.1,IP:::1\nbasicConstraints=CA:FALSE\n"
        "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
    )
    openssl(
        "x509", "-req", "-in", str(request), "-CA", str(ca), "-CAkey", str(ca_key), "-CAcreateserial", "-out", str(leaf),
        "-days", "7", "-extfile", str(extensions),
    )
    public = openssl("pkey", "-in", str(key), "-pubout", "-outform", "DER")
    spki = base64.b64encode(hashlib.sha256(public).digest()).decode()
    chain = folder / "chain.pem"
    chain.write_text(leaf.read_text() + ca.read_text())
    return Certificates(ca, chain, key, spki)
