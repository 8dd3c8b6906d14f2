-- What receivers elsewhere were told (`serve --notify`), and which server is about to tell them what: of any number of
-- servers one has a thing at a time.

CREATE TABLE {schema}.deliveries (
    receiver text COLLATE "C" NOT NULL,     -- a hash of its address, which may be a secret
    id       text COLLATE "C" NOT NULL,
    server   text COLLATE "C" NOT NULL,
    until    double precision NOT NULL,     -- until then it is that server's; all times are by the clock of the database
    told_at  double precision,
    PRIMARY KEY (receiver, id)
);

CREATE TABLE {schema}.delivery_times (
    name text COLLATE "C" PRIMARY KEY,
    at   double precision NOT NULL
);

UPDATE {schema}.version SET version = version + 1;
