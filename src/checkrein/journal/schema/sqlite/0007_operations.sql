-- What operators did: halts and resets, chained like the events of a run. `body` says who, why, where and when.
CREATE TABLE operations (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    was_latched INTEGER NOT NULL,
    hash        BLOB NOT NULL,
    body        BLOB NOT NULL
);
