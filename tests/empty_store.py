"""Empty SQLite stores, copied: that takes a hundredth of bringing a new file up to the schema."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tunerd.store import open_store

__all__ = ["empty_store"]


def empty_store(path: Path) -> str:
    """Put a store with tunerd's schema there, unless there is a file. Returns its URL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(_migrated())
    return f"sqlite:///{path}"


@cache
def _migrated() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "store.sqlite")
        open_store(f"sqlite:///{path}").close()
        return path.read_bytes()
