"""A real PostgreSQL from the binaries that ``pg_config --bindir`` names.

``python -m tests.servers.postgres`` starts one, prints its URL and stops it on Ctrl-C or SIGTERM.
PostgreSQL refuses to run as root; started by root, it runs as the user ``postgres``.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from tests.servers import MissingServerError, end, free_ports, tied, wait_until

__all__ = ["Databases", "PostgresServer"]

START_TIMEOUT_S = 30.0


class PostgresServer:
    """One server on a free port of 127.0.0.1; anyone on this machine may connect as postgres.

    It runs in a folder of its own, removed by ``remove``. ``durable=False`` skips fsync, which
    only a crash of the whole machine could tell.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._binaries = _binaries()
        self._user = _user()
        (self.port,) = free_ports(1)
        # Not in pytest's folders: the user postgres may not enter them.
        self.folder = Path(tempfile.mkdtemp(prefix="tunerd-postgres-"))
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._durable = durable
        self.options: Sequence[str] = ()
        """Further ones, ``name=value``, from the next start on."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL of the maintenance database, ``postgresql://…``; the same after every restart."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start and wait until it takes connections (0.7 s the first time).

        It dies with the thread that calls this.
        """
        data = self.folder / "data"
        if not data.exists():
            initdb = str(self._binaries / "initdb")
            subprocess.run(
                [initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync"],
                cwd=self.folder,
                user=self._user,
                check=True,
                capture_output=True,
            )
        options = [f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories="]
        options += self.options
        if not self._durable:
            options += ["fsync=off", "full_page_writes=off"]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*tied(), str(self._binaries / "postgres"), "-D", str(data)]
                + [f"--{option}" for option in options],
                cwd=self.folder,
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, START_TIMEOUT_S, f"PostgreSQL starts ({self.folder}/server.log)")

    def stop(self) -> None:
        """Stop in good order, ending open connections."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a crash would (what ``pg_ctl -m immediate stop`` does)."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        """Start again at the same address, on the same data, after ``stop`` or ``kill``."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it and remove all that it wrote."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            said = (self.folder / "server.log").read_text(errors="replace")
            raise RuntimeError(f"PostgreSQL ended while starting:\n{said[-2000:]}")
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url).close()
            return True
        return False

    def _end(self, number: int) -> None:
        if self._process is not None:
            end(self._process, number)
            self._process = None


class Databases:
    """Makes fresh databases on a server, and drops them in the end."""

    def __init__(self, url: str) -> None:
        self._admin_url = url.replace("postgresql+psycopg://", "postgresql://", 1)
        self._made: list[str] = []

    def create(self) -> str:
        """Make an empty database. Returns its SQLAlchemy URL, ``postgresql+psycopg://…``."""
        name = f"tunerd_test_{secrets.token_hex(8)}"
        self._run(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        self._made.append(name)
        head, _, tail = self._admin_url.removeprefix("postgresql://").partition("/")
        _, mark, query = tail.partition("?")
        return f"postgresql+psycopg://{head}/{name}{mark}{query}"

    def drop(self, url: str) -> None:
        """Drop one that ``create`` made, whoever is still connected to it."""
        name = url.rpartition("/")[2].partition("?")[0]
        self._made.remove(name)
        self._run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def drop_all(self) -> None:
        """Drop all that ``create`` made."""
        for name in list(self._made):
            self.drop(f"/{name}")

    def _run(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._admin_url, autocommit=True) as connection:
            connection.execute(statement)


def _binaries() -> Path:
    tool = shutil.which("pg_config")
    if tool is None:
        raise MissingServerError("no `pg_config` on the PATH; install PostgreSQL 14 or newer")
    done = subprocess.run([tool, "--bindir"], capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    if not (folder / "initdb").exists():
        raise MissingServerError(f"no server in {folder} (`pg_config --bindir`); install one")
    return folder


def _user() -> str | None:
    """The user to run as: ``postgres`` for root, nobody else otherwise."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise MissingServerError("no user `postgres`, and PostgreSQL refuses root") from None


def main() -> None:
    server = PostgresServer(durable=True)
    try:
        server.start()
        print(server.url, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        server.remove()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
