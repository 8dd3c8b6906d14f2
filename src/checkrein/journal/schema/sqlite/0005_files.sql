-- What calls have published. The hash of each is in its call.finished: what does not fit that is not shown.
CREATE TABLE files (
    run    INTEGER NOT NULL,
    call   TEXT NOT NULL,             -- of an attempt, as in `chunks`
    number INTEGER NOT NULL,
    body   BLOB NOT NULL,
    PRIMARY KEY (run, call, number)
);
