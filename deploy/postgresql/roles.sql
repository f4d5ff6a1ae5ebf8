-- Two roles for tunerd: `tunerd_owner` makes and migrates the tables, `tunerd` works with them.
--
--     psql -v ON_ERROR_STOP=1 -v database=tunerd -d postgres -f roles.sql
--
-- Run it as a superuser, once. Then give each role a password (`\password tunerd` in psql), and run
-- `tunerd store migrate` as the owner before the first daemon starts. Who has a store already, owned
-- by `tunerd`, makes the owner and the grants by hand: see docs/operations.md.

CREATE ROLE tunerd_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
CREATE ROLE tunerd LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;

CREATE DATABASE :"database" OWNER tunerd_owner;
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO tunerd;

\connect :"database"

-- Before PostgreSQL 15 everybody may make tables here.
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO tunerd_owner;
GRANT USAGE ON SCHEMA public TO tunerd;

-- Tables of the future too: a migration adds some.
ALTER DEFAULT PRIVILEGES FOR ROLE tunerd_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO tunerd;
ALTER DEFAULT PRIVILEGES FOR ROLE tunerd_owner IN SCHEMA public
    GRANT USAGE ON SEQUENCES TO tunerd;
