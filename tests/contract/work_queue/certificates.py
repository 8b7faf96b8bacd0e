"""Certificates of a service and of a client, and who signs them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificates(folder: Path) -> Path:
    """Write ca.pem, server.pem, server.key, client.pem and client.key; returns the folder."""
    authority = ec.generate_private_key(ec.SECP256R1())
    signer = _name("tests")
    _write(folder, "ca", authority, _signed(authority, signer, authority, signer, is_ca=True))
    for role in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder, role, key, _signed(key, _name(role), authority, signer, is_ca=False))
    return folder


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(
    key: ec.EllipticCurvePrivateKey,
    name: x509.Name,
    authority: ec.EllipticCurvePrivateKey,
    signer: x509.Name,
    *,
    is_ca: bool,
) -> x509.Certificate:
    now = datetime.now(UTC)
    own, its = key.public_key(), authority.public_key()
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    identifier = x509.SubjectKeyIdentifier.from_public_key(own)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(signer)
        .public_key(own)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(alternative, critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(its), critical=False)
        .sign(authority, hashes.SHA256())
    )


def _write(
    folder: Path, role: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    pem = serialization.Encoding.PEM
    (folder / f"{role}.pem").write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{role}.key").write_bytes(private)
