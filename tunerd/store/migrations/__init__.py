"""How the schema came to be, one file per step; :mod:`tunerd.store.schema` runs them."""
