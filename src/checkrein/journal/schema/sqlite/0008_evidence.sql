-- Text that watchers withheld: for operators and bundles only. Its hash and length are in watcher.flagged.
CREATE TABLE withheld (
    run      INTEGER NOT NULL,
    flag     TEXT NOT NULL,           -- the id of the watcher.flagged
    call     TEXT NOT NULL,           -- of an attempt, as in `chunks`
    "offset" INTEGER NOT NULL,
    text     TEXT NOT NULL,
    PRIMARY KEY (run, flag)
) WITHOUT ROWID;

-- What was signed, in one list for the whole store; each body names the entry before it by its hash.
CREATE TABLE signed (
    number    INTEGER PRIMARY KEY,
    run       TEXT NOT NULL,          -- empty: about several, or none
    body      BLOB NOT NULL,
    key       BLOB NOT NULL,
    signature BLOB NOT NULL,
    leaves    BLOB NOT NULL
);
CREATE INDEX signed_by_run ON signed (run) WHERE run <> '';
