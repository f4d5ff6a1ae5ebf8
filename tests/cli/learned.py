"""An installation whose study has learned jobs, for commands that look at what came of it."""

from dataclasses import dataclass
from pathlib import Path

from tests.empty_store import empty_store
from tests.servers import free_ports
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import Tuning
from tunerd.store import Store, open_store

__all__ = ["Learning"]


@dataclass
class Learning:
    """A settings file, the store that it names, and the tune stage on it."""

    file: Path
    store: Store
    tuning: Tuning

    @classmethod
    def within(cls, folder: Path) -> "Learning":
        """In this folder, where it finds a store if there is one already."""
        (port,) = free_ports(1)
        file = folder / "tunerd.toml"
        url = empty_store(folder / "store.sqlite")
        file.write_text(f'[store]\nurl = "{url}"\n[http]\nport = {port}\n')
        store = open_store(url)
        return cls(file, store, Tuning(store, Time(), Heard()))

    def close(self) -> None:
        """End the stages and close the store."""
        self.tuning.end()
        self.store.close()
