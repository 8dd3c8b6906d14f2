-- The roster of workers: one row for each process that was ever enlisted under a name.
CREATE TABLE workers (
    key        INTEGER PRIMARY KEY,   -- in the order of enlisting
    name       TEXT NOT NULL,
    process    TEXT NOT NULL,
    host       TEXT NOT NULL,
    boot_id    TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    started    REAL NOT NULL,
    version    TEXT NOT NULL,
    cards      BLOB NOT NULL,
    agents     TEXT NOT NULL,         -- their names, as JSON
    slots      INTEGER NOT NULL,
    free       INTEGER NOT NULL,
    engine     TEXT NOT NULL,
    since      REAL NOT NULL,
    seen_until REAL NOT NULL,
    discharged INTEGER NOT NULL DEFAULT 0,   -- it has ended in order
    replaced   INTEGER NOT NULL DEFAULT 0,   -- a newer process has its name
    buried_by  TEXT,                  -- who has said that it is dead; NULL: nobody
    reason     TEXT,
    buried_at  REAL,
    UNIQUE (name, process)
);
CREATE INDEX workers_by_process ON workers (process);
CREATE UNIQUE INDEX workers_by_name ON workers (name) WHERE replaced = 0;
