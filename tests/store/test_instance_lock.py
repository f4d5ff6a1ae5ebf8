"""Who has a store, when connections to its server are lost."""

import pytest

from tests.contracts.store_data import NOW
from tests.servers import wait_until
from tests.servers.wire import Wire
from tunerd.errors import AlreadyRunningError, StoreUnavailableError
from tunerd.store import open_store, postgres


def test_a_claim_whose_connection_was_lost_unnoticed_by_the_server_is_nobody_elses(
    wire: Wire, postgres_url: str, wired_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SILENT_S", 0.2)
    with open_store(wired_url) as store, store.guard(NOW) as guard:
        wire.cut()
        with pytest.raises(StoreUnavailableError, match="refused"):
            guard.check()
        wire.mend()
        with pytest.raises(StoreUnavailableError, match="still has the session of process"):
            guard.check()
        with open_store(postgres_url) as other, pytest.raises(AlreadyRunningError):
            other.guard(NOW)
        wire.tell()

        def back() -> bool:
            try:
                guard.check()
            except StoreUnavailableError:
                return False
            return True

        wait_until(back, 10, "the claim stands again")
        with open_store(postgres_url) as other, pytest.raises(AlreadyRunningError):
            other.guard(NOW)
