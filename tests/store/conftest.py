"""The same stores as in the contract suite."""

from tests.contracts.conftest import shared_postgres_url, sqlite_template, store, store_url

__all__ = ["shared_postgres_url", "sqlite_template", "store", "store_url"]
