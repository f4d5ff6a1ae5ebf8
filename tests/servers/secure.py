"""Servers that ask who you are: a Kafka with SASL, and TLS both ways; a PostgreSQL with TLS."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers import MissingServerError
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer

__all__ = [
    "PASSWORD",
    "USER",
    "Certificates",
    "certify",
    "secure_kafka",
    "secure_postgres",
    "use_certificate",
]

USER = "tunerd"
PASSWORD = "Tr0ub4dor-and-3"  # noqa: S105


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, what it signed, and an authority that nobody knows."""

    ca: Path
    broker: Path
    """Key and certificate in one file."""
    client: Path
    client_key: Path
    stranger: Path
    expired: Path
    """A client certificate that was valid once, for ``client_key``."""
    coming: Path
    """One that will be valid in 2090."""
    encrypted_key: Path
    """``client_key``, with a password."""


def secure_kafka(folder: Path) -> tuple[KafkaServer, Certificates]:
    """Return a broker with the listeners SASL (PLAIN without TLS), SASLTLS, TLS (mutual) and OLD
    (TLS with an expired certificate of the broker).

    Raises MissingServerError without openssl.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = _certificates(folder)
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_{USER}="{PASSWORD}";'
    )
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(made.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(made.ca),
        "listener.name.sasl.plain.sasl.jaas.config": login,
        "listener.name.sasltls.plain.sasl.jaas.config": login,
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.old.ssl.keystore.type": "PEM",
        "listener.name.old.ssl.keystore.location": str(folder / "old-both.pem"),
    }
    listeners = {"SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL", "TLS": "SSL", "OLD": "SSL"}
    return KafkaServer(folder / "broker", properties, listeners), made


def secure_postgres(folder: Path) -> tuple[PostgresServer, Certificates]:
    """Return a server that is running, with TLS. The superuser may come in without a password from
    this machine, all others only with TLS and one. Its certificate is ``server.folder/used.pem``:
    :func:`use_certificate` gives it another.

    Raises MissingServerError without PostgreSQL or openssl.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = _certificates(folder)
    server = PostgresServer()
    files = {"ssl_cert_file": "used.pem", "ssl_key_file": "used.key", "hba_file": "hba.conf"}
    server.options = ["ssl=on", *(f"{key}={server.folder / name}" for key, name in files.items())]
    try:
        (server.folder / "hba.conf").write_text(
            "host all postgres 127.0.0.1/32 trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
        )
        use_certificate(server, folder, "broker")
        server.start()
    except BaseException:
        server.remove()
        raise
    return server, made


def use_certificate(server: PostgresServer, folder: Path, name: str) -> None:
    """Give a PostgreSQL the certificate ``name`` (``broker``, or the expired ``old``)."""
    for kind, source in (("pem", name), ("key", "broker")):
        file = server.folder / f"used.{kind}"
        shutil.copy(folder / f"{source}.{kind}", file)
        file.chmod(0o600)
        shutil.chown(file, server.folder.owner())


def _certificates(folder: Path) -> Certificates:
    if shutil.which("openssl") is None:
        raise MissingServerError("no `openssl` on the PATH to make certificates with")
    for name in ("ca", "stranger"):
        _openssl(f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name}", folder, name)
    names = folder / "names.ext"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("broker", "client"):
        _openssl(f"req -newkey rsa:2048 -nodes -subj /CN={name}", folder, name, "csr")
        signing = f"x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial"
        _openssl(f"{signing} -extfile {names.name} -out {name}.pem", folder)
    _dated(folder, "broker", "old", "20200101000000Z", "20200201000000Z")
    _dated(folder, "client", "expired", "20200101000000Z", "20200201000000Z")
    _dated(folder, "client", "coming", "20900101000000Z", "20910101000000Z")
    _openssl("pkey -in client.key -aes128 -passout pass:secret -out encrypted.key", folder)
    (folder / "old-both.pem").write_text(
        (folder / "broker.key").read_text() + (folder / "old.pem").read_text()
    )
    both = folder / "broker-both.pem"
    both.write_text((folder / "broker.key").read_text() + (folder / "broker.pem").read_text())
    return Certificates(
        ca=folder / "ca.pem",
        broker=both,
        client=folder / "client.pem",
        client_key=folder / "client.key",
        stranger=folder / "stranger.pem",
        expired=folder / "expired.pem",
        coming=folder / "coming.pem",
        encrypted_key=folder / "encrypted.key",
    )


def _dated(folder: Path, request: str, name: str, begins: str, ends: str) -> None:
    """Sign a request for a time that is not now."""
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca=own\n[own]\nnew_certs_dir=.\ndatabase=index.txt\nserial=serial\n"
        "default_md=sha256\npolicy=any\nunique_subject=no\n[any]\ncommonName=supplied\n"
    )
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("1000\n")
    dates = f"-startdate {begins} -enddate {ends}"
    _openssl(
        f"ca -batch -notext -config ca.cnf -cert ca.pem -keyfile ca.key {dates} "
        f"-extfile names.ext -in {request}.csr -out {name}.pem",
        folder,
    )


def _openssl(command: str, folder: Path, name: str = "", kind: str = "pem") -> None:
    """Run it in the folder; with a name it writes ``name.key`` and ``name.kind``."""
    out = ["-keyout", f"{name}.key", "-out", f"{name}.{kind}"] if name else []
    done = subprocess.run(
        ["openssl", *command.split(), *out], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"openssl: {done.stderr[-1000:]}")


def certify(folder: Path, name: str = "tls") -> tuple[Path, Path]:
    """A certificate for this machine, signed by itself, and its key."""
    names = "-addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256"
    _openssl(f"req -x509 {curve} -nodes -days 2 -subj /CN={name} {names}", folder, name, "crt")
    return folder / f"{name}.crt", folder / f"{name}.key"
