"""What Alembic runs to migrate: on the connection, and in the transaction, that it is given."""

from alembic import context

from tunerd.store.schema import VERSION_TABLE
from tunerd.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
