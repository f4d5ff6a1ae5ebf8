"""A folder of JSON-lines files as a stream: needs nothing installed, and a person can read it."""
