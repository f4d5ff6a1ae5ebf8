"""Connections to PostgreSQL that end when the other side is gone.

A process that freezes inside a transaction is thrown out by the server after a minute, so that it
cannot hold up the others for good. And a server that freezes, or a network that no longer carries
anything, ends a statement here: the driver would wait for hours, or for ever.
"""

import logging
from collections.abc import Generator
from time import monotonic
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import URL

from tunerd.store.certificate import refused_certificate

__all__ = ["postgres_engine"]

CONNECT_TIMEOUT_S = 10
SILENT_S = 15.0
"""How long nothing may come in before the server is asked whether it still answers."""
LOST_S = 30
"""How long what was sent may go without the network's acknowledgement."""

_OPTIONS = (
    "-c idle_in_transaction_session_timeout=60000 "
    "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3 "
    # As the driver reads what comes, whatever the role or the database is set to.
    "-c timezone=UTC -c datestyle=ISO -c standard_conforming_strings=on"
)


class _WatchedConnection(psycopg.Connection[Any]):
    """One whose statements may take long, as long as the server takes new connections."""

    def wait(self, gen: Generator[Any, Any, Any], *how: Any, **further: Any) -> Any:
        return super().wait(self._watched(gen), *how, **further)

    def _watched(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        heard_at = monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard_at = monotonic()
                elif monotonic() - heard_at > SILENT_S:
                    self._look_for_server()
                    heard_at = monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _look_for_server(self) -> None:
        info = self.info
        try:
            psycopg.connect(
                info.dsn, password=info.password, connect_timeout=CONNECT_TIMEOUT_S
            ).close()
        except psycopg.OperationalError as error:
            self.pgconn.finish()  # nobody goes on with half an answer
            raise psycopg.OperationalError(
                f"the server has not answered for {SILENT_S:g} s, and takes no new connection "
                f"either: {error}"
            ) from error


def postgres_engine(
    url: URL, password: str | None, pool_size: int, lock_timeout_s: int
) -> sa.Engine:
    """An engine for ``postgresql://USER@HOST:PORT/DATABASE``. Does not connect."""
    query = dict(url.query)
    options = query.pop("options", "")
    for name, value in {
        "application_name": "tunerd",
        "client_encoding": "UTF8",
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": LOST_S,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": LOST_S * 1000,
    }.items():
        query.setdefault(name, str(value))
    # The operator's options come last and win.
    query["options"] = " ".join(
        [
            f"-c lock_timeout={lock_timeout_s * 1000}",
            _OPTIONS,
            *([options] if isinstance(options, str) else options),
        ]
    ).strip()
    # It warns of what follows from an error, with each try; the error itself is raised.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    url = url.set(drivername="postgresql+psycopg", query=query)
    engine = sa.create_engine(
        url.set(password=password) if password else url,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        pool_pre_ping=True,
        pool_size=pool_size,
    )

    @sa.event.listens_for(engine, "do_connect")
    def connect(
        _dialect: object, _record: object, arguments: Any, parameters: dict[str, Any]
    ) -> _WatchedConnection:
        try:
            return _WatchedConnection.connect(*arguments, **parameters)
        except psycopg.OperationalError as error:
            # Which of a dozen reasons it was, the driver's library says to nobody.
            if "certificate verify failed" not in str(error):
                raise
            reason = refused_certificate(parameters)
            raise psycopg.OperationalError(
                f"the server's certificate is refused: {reason}"
            ) from error

    return engine
