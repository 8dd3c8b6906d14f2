-- What calls have published, for people on other hosts to read. The hash of each is in its call.finished: what does not
-- fit that is not shown.

CREATE TABLE {schema}.files (
    run    bigint NOT NULL,
    call   bytea NOT NULL,            -- of an attempt, as in `chunks`
    number bigint NOT NULL,
    body   bytea NOT NULL,
    PRIMARY KEY (run, call, number)
);

CREATE FUNCTION {schema}.write_file(a_run text, a_call bytea, a_number bigint, a_body bytea) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO {schema}.files (run, call, number, body)
    SELECT r.key, a_call, a_number, a_body FROM {schema}.runs r WHERE r.id = a_run
    ON CONFLICT (run, call, number) DO UPDATE SET body = excluded.body
$$;

UPDATE {schema}.version SET version = version + 1;
