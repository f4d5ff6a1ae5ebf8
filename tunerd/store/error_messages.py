"""What went wrong in the database, in one sentence that an operator can act on."""

import sqlite3

import sqlalchemy as sa

__all__ = ["RUN_AS_OWNER", "explain"]

RUN_AS_OWNER = "run this as the user that it belongs to, or give it to this one"

_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_BUSY: "another process has kept the database locked for too long",
    sqlite3.SQLITE_LOCKED: "another connection has kept the database locked for too long",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check that its folder exists and that "
    "this user may write there",
    sqlite3.SQLITE_READONLY: "the file is not writable: its disk is read-only, or it "
    "belongs to another user; run this as that one, or give it to this one",
    sqlite3.SQLITE_PERM: f"this user may not use the file; {RUN_AS_OWNER}",
    sqlite3.SQLITE_IOERR: "reading or writing the disk failed",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
}

_POSTGRES = {
    "25006": "is it a replica, or is default_transaction_read_only on?",
    "3F000": "was it dropped, or is a backup being restored?",
    "42501": "",
    "42P01": "was it dropped, or is a backup being restored?",
    "53100": "make room for the database",
    "55P03": "another session keeps a table locked; `SELECT * FROM pg_stat_activity` shows it",
}
"""By SQLSTATE: what an operator does about it. None of them is the statement's fault."""

_LONGEST = 300


def explain(error: sa.exc.SQLAlchemyError, secret: str) -> str | None:
    """One sentence about a database that cannot be used; None when the statement is at fault.

    Args:
        error: as SQLAlchemy raised it.
        secret: the database's password, never repeated.
    """
    if isinstance(error, sa.exc.TimeoutError):
        return "all connections have been busy for too long"
    if not isinstance(error, sa.exc.DBAPIError):
        return None
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        # The low byte is the kind; the rest says which operation failed.
        return _SQLITE.get(code & 0xFF)
    hint = _POSTGRES.get(getattr(cause, "sqlstate", None) or "")
    kinds = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError)
    if hint is None and not (error.connection_invalidated or isinstance(error, kinds)):
        return None
    text = " ".join(str(cause).split()).removesuffix(" ^")
    if secret:
        text = text.replace(secret, "***")
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    return f"{text}; {hint}" if hint else text
