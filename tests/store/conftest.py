"""The same stores as in the contract suite, and a network to a server that can be cut."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.contracts.conftest import shared_postgres_url, store, store_url
from tests.servers.wire import Wire

__all__ = ["shared_postgres_url", "store", "store_url", "wire", "wired_url"]


@pytest.fixture
def wire(postgres_url: str) -> Iterator[Wire]:
    """A network to the server of ``postgres_url``."""
    wire = Wire(sa.make_url(postgres_url).port or 5432)
    yield wire
    wire.close()


@pytest.fixture
def wired_url(wire: Wire, postgres_url: str) -> str:
    """``postgres_url`` over that network."""
    return sa.make_url(postgres_url).set(port=wire.port).render_as_string(hide_password=False)
