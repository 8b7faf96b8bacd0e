"""Certificates of an authority of the test's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NO_NAME = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "shop,CN=second+CN=third\\")
"""Of a subject, and no common name."""


def common_name(name: str) -> x509.NameAttribute[str]:
    """One of a subject."""
    return x509.NameAttribute(NameOID.COMMON_NAME, name)


class Certificates:
    """Files in PEM, in a folder: those of an authority, and those that it signs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.authority = self._written("authority", self._key, is_authority=True)[0]

    def of(self, name: str, *subject: x509.NameAttribute[str]) -> tuple[Path, Path]:
        """The certificate and the key of a name, with more in its subject."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._written(name, key, *subject, is_authority=False)

    def _written(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        *subject: x509.NameAttribute[str],
        is_authority: bool,
    ) -> tuple[Path, Path]:
        now, own = datetime.now(UTC), self._key.public_key()
        names: list[x509.GeneralName] = [
            x509.DNSName(name),
            x509.IPAddress(ip_address("127.0.0.1")),
        ]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([common_name(name), *subject]))
            .issuer_name(x509.Name([common_name("authority")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
            # From Python 3.13 on, an authority has to say what its key is for.
            .add_extension(_usage(signs_certificates=is_authority), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return paths


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
