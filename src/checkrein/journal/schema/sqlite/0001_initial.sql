-- A journal in one SQLite file. Only `events` is the truth; the chain in `hash` shows whether it was touched.
-- Everything else is derived from events, guards them, or is text that may be lost.

CREATE TABLE runs (
    key        INTEGER PRIMARY KEY,   -- in the order of creation
    id         TEXT NOT NULL UNIQUE,
    agent      TEXT NOT NULL,
    owner      TEXT NOT NULL,
    thread     TEXT NOT NULL,
    parent     TEXT,
    root       TEXT,
    status     TEXT NOT NULL,         -- written only when it changes, so that its index is left alone otherwise
    created_at REAL NOT NULL,
    goal       TEXT NOT NULL
);

CREATE INDEX runs_by_status ON runs (status);
CREATE INDEX runs_by_thread ON runs (thread);
CREATE INDEX runs_by_owner ON runs (owner);
CREATE INDEX runs_by_agent ON runs (agent);
CREATE INDEX runs_by_root ON runs (root) WHERE root IS NOT NULL;
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;

-- Apart from `runs`, so that a long goal is not written again with them. The rest of a run's head is its last event:
-- an append that decides nothing writes no other row.
CREATE TABLE heads (
    run        INTEGER PRIMARY KEY,
    decided    INTEGER NOT NULL,      -- seq of the last deciding event
    epoch      INTEGER NOT NULL
);

CREATE TABLE events (
    position INTEGER PRIMARY KEY,     -- in the order of commits, over all runs
    run      INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    id       TEXT NOT NULL,
    at       REAL NOT NULL,
    hash     BLOB NOT NULL,
    body     BLOB NOT NULL,
    UNIQUE (run, seq),
    UNIQUE (run, id)
);

CREATE TABLE leases (
    run      INTEGER PRIMARY KEY,     -- its epoch is that of the head
    process  TEXT NOT NULL,
    host     TEXT NOT NULL,
    boot_id  TEXT NOT NULL,
    pid      INTEGER NOT NULL,
    started  REAL NOT NULL,
    deadline REAL NOT NULL
);

CREATE INDEX leases_by_process ON leases (process);

CREATE TABLE fences (
    scope  TEXT NOT NULL,
    name   TEXT NOT NULL,
    halt   INTEGER NOT NULL,
    source TEXT NOT NULL,             -- the name it was made for: `name` itself, or that of a run above
    by     TEXT NOT NULL,
    reason TEXT NOT NULL,
    at     REAL NOT NULL,
    PRIMARY KEY (scope, name, halt, source)
) WITHOUT ROWID;

CREATE TABLE effects (
    run    INTEGER NOT NULL,
    id     TEXT NOT NULL,
    state  TEXT NOT NULL,             -- overrides the one in `body`
    opened INTEGER NOT NULL,          -- seq of its last effect.opened
    body   BLOB NOT NULL,
    PRIMARY KEY (run, id)
) WITHOUT ROWID;

CREATE TABLE chunks (
    run      INTEGER NOT NULL,
    call     TEXT NOT NULL,
    "offset" INTEGER NOT NULL,
    text     TEXT NOT NULL,
    PRIMARY KEY (run, call, "offset")
) WITHOUT ROWID;

CREATE TABLE snapshots (
    run     INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL,
    version TEXT NOT NULL,            -- which shape of state this is
    state   BLOB NOT NULL
);
