"""PostgreSQL over TLS with the roles of `deploy/postgresql/roles.sql`: what a daemon may do."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.integration.daemons import PATIENCE_S, Daemon, events
from tests.needs import need_program, without
from tests.servers import MissingServerError
from tests.servers.postgres import PostgresServer
from tests.servers.secure import PASSWORD, Certificates, secure_postgres, use_certificate
from tunerd.store import open_store
from tunerd.store.schema import HEAD

ROLES = Path(__file__).parents[2] / "deploy/postgresql/roles.sql"


@dataclass(frozen=True)
class Secured:
    """A server with the roles, and the folder of its certificates."""

    server: PostgresServer
    certificates: Certificates
    folder: Path

    def url(self, user: str, authority: Path | None = None, host: str = "localhost") -> str:
        authority = authority or self.certificates.ca
        where = f"{user}@{host}:{self.server.port}/tunerd"
        return f"postgresql://{where}?sslmode=verify-full&sslrootcert={authority}"

    def environ(self, user: str, **how: Path) -> dict[str, str]:
        """What makes `tunerd` work as this role."""
        password = self.folder / "password"
        password.write_text(PASSWORD)
        return {
            "TUNERD_STORE__URL": self.url(user, **how),  # type: ignore[arg-type]
            "TUNERD_STORE__PASSWORD_FILE": str(password),
        }


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    psql = need_program("psql", "postgresql-client")
    try:
        server, certificates = secure_postgres(tmp_path / "certificates")
    except MissingServerError as error:
        without("PostgreSQL", str(error))
    try:
        run = [psql, "-v", "ON_ERROR_STOP=1", "-v", "database=tunerd", "-d", server.url]
        subprocess.run([*run, "-f", str(ROLES)], check=True, capture_output=True)
        with psycopg.connect(server.url, autocommit=True) as connection:
            for role in ("tunerd", "tunerd_owner"):
                connection.execute(f"ALTER ROLE {role} PASSWORD '{PASSWORD}'")
        yield Secured(server, certificates, tmp_path / "certificates")
    finally:
        server.remove()


def tunerd(daemon: Daemon, environ: dict[str, str], *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tunerd", *arguments, "--settings", str(daemon.file)],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert PASSWORD not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_daemon_works_with_the_narrow_role_and_no_more(secured: Secured, tmp_path: Path) -> None:
    narrow, owner = secured.environ("tunerd"), secured.environ("tunerd_owner")
    daemon = Daemon(tmp_path / "daemon", environ=narrow)
    for _ in range(2):  # it has left nothing behind that a second one would take for a store
        code, output = tunerd(daemon, narrow, "run")
        assert (code, "holds nothing of tunerd" in output) == (2, True)
        assert "`tunerd store migrate`" in output
    assert tunerd(daemon, owner, "store", "migrate") == (0, f"The store has schema {HEAD}.\n")
    try:
        daemon.start()
        daemon.send(events(30))
        with open_store(secured.url("tunerd"), PASSWORD, upgrade=False) as store:
            daemon.until(lambda: store.progress()[0].learned_sequence == 30, "they are learned")
            daemon.until(lambda: bool(store.recommendations("toy")), "something is recommended")
            daemon.until(lambda: not store.outbox_depths(), "all is sent")
        code, output = tunerd(daemon, narrow, "pause", "toy", "--why", "to see", "--yes")
        assert code == 0, output
        assert daemon.stop()[0] == 0
    finally:
        daemon.end()
    assert PASSWORD not in daemon.log.read_text()
    with psycopg.connect(secured.url("tunerd"), password=PASSWORD, autocommit=True) as connection:
        for statement in (
            "CREATE TABLE more (id int)",
            "ALTER TABLE studies ADD COLUMN more int",
            "DROP TABLE studies",
            "TRUNCATE observations",
            "CREATE SCHEMA more",
            "CREATE ROLE more",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


@pytest.mark.slow
def test_a_store_of_an_older_schema_is_left_to_its_owner(secured: Secured, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "daemon")
    owner = secured.environ("tunerd_owner")
    assert tunerd(daemon, owner, "store", "migrate")[0] == 0
    with psycopg.connect(secured.url("tunerd_owner"), password=PASSWORD) as connection:
        connection.execute("UPDATE tunerd_schema SET version_num = '0005'")
    code, output = tunerd(daemon, secured.environ("tunerd"), "run")
    problem = json.loads(output)["problem"]
    assert code == 2
    assert f"has schema 0005, not {HEAD}; its owner has to run `tunerd store migrate`" in problem


@pytest.mark.slow
def test_what_is_wrong_with_tls_or_the_password_is_named(secured: Secured, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "daemon")

    def problem(environ: dict[str, str]) -> str:
        code, output = tunerd(daemon, environ, "store", "migrate")
        assert code == 1, output
        return output

    owner = secured.environ("tunerd_owner")
    assert "sslrootcert is not of the authority" in problem(
        secured.environ("tunerd_owner", authority=secured.certificates.stranger)
    )
    plain = owner | {"TUNERD_STORE__URL": secured.url("tunerd_owner").partition("?")[0]}
    plain["TUNERD_STORE__URL"] += "?sslmode=disable"
    assert "no encryption" in problem(plain)
    wrong = tmp_path / "wrong"
    wrong.write_text("Wr0ng-and-secret")
    output = problem(owner | {"TUNERD_STORE__PASSWORD_FILE": str(wrong)})
    assert "password authentication failed" in output
    assert "Wr0ng" not in output
    use_certificate(secured.server, secured.folder, "old")
    secured.server.restart()
    assert "certificate has expired" in problem(owner)
