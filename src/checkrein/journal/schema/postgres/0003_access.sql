-- The keys to the runs of a store: tokens, sessions of browsers and one-time codes, for every server that uses it. Only
-- hashes are kept: whoever reads these tables learns who has keys, not the keys.

CREATE TABLE {schema}.tokens (
    id         text COLLATE "C" PRIMARY KEY,
    hash       bytea NOT NULL UNIQUE,
    name       bytea NOT NULL,
    role       text COLLATE "C" NOT NULL,
    owner      bytea NOT NULL,
    run        text COLLATE "C",
    origins    text[] NOT NULL,
    created_at double precision NOT NULL,   -- all times are by the clock of the server
    created_by bytea NOT NULL,
    expires_at double precision,
    used_at    double precision,
    revoked_at double precision,
    parent     bytea                        -- the hash of the token that it was given out with, and ends with
);

CREATE TABLE {schema}.sessions (
    hash       bytea PRIMARY KEY,
    token      bytea NOT NULL,
    created_at double precision NOT NULL,
    expires_at double precision NOT NULL
);

CREATE TABLE {schema}.codes (
    hash       bytea PRIMARY KEY,
    token      bytea NOT NULL,
    expires_at double precision NOT NULL
);

UPDATE {schema}.version SET version = version + 1;
