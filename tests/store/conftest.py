"""The same stores as in the contract suite."""

from tests.contracts.conftest import shared_postgres_url, store, store_url

__all__ = ["shared_postgres_url", "store", "store_url"]
