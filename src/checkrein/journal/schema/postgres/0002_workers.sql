-- The roster of workers: one row for each process that was ever enlisted under a name.

CREATE TABLE {schema}.workers (
    key        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,
    process    text COLLATE "C" NOT NULL,
    host       text COLLATE "C" NOT NULL,
    boot_id    text COLLATE "C" NOT NULL,
    pid        bigint NOT NULL,
    started    double precision NOT NULL,
    version    text COLLATE "C" NOT NULL,
    cards      bytea NOT NULL,
    agents     bytea NOT NULL,            -- their names, as JSON
    slots      bigint NOT NULL,
    free       bigint NOT NULL,
    engine     text COLLATE "C" NOT NULL,
    since      double precision NOT NULL, -- by the clock of the server, as the other times
    seen_until double precision NOT NULL,
    discharged boolean NOT NULL DEFAULT false,   -- it has ended in order
    replaced   boolean NOT NULL DEFAULT false,   -- a newer process has its name
    buried_by  bytea,                     -- who has said that it is dead; NULL: nobody
    reason     bytea,
    buried_at  double precision,
    UNIQUE (name, process)
) WITH (fillfactor = 50);
CREATE INDEX workers_by_process ON {schema}.workers (process);
CREATE UNIQUE INDEX workers_by_name ON {schema}.workers (name) WHERE NOT replaced;

-- The key of the row that answers: the worker itself, or whoever has its name.
CREATE FUNCTION {schema}.enlist(
    a_name text, a_process text, a_host text, a_boot_id text, a_pid bigint, a_started double precision, a_version text,
    some_cards bytea, some_agents bytea, some_slots bigint, some_free bigint, an_engine text,
    seconds double precision, told_now double precision, instead_of text[],
    OUT outcome text, OUT answer bigint
) LANGUAGE plpgsql AS $$
DECLARE
    own {schema}.workers%ROWTYPE;
    holder {schema}.workers%ROWTYPE;
    at_now double precision;
BEGIN
    -- Of any number of processes that want a name at the same moment one gets it.
    PERFORM pg_advisory_xact_lock(hashtextextended(a_name, 7014));
    at_now := coalesce(told_now, extract(epoch FROM clock_timestamp()));
    SELECT * INTO own FROM {schema}.workers WHERE name = a_name AND process = a_process FOR NO KEY UPDATE;
    SELECT * INTO holder FROM {schema}.workers WHERE name = a_name AND NOT replaced FOR NO KEY UPDATE;
    IF own.buried_by IS NOT NULL THEN
        outcome := 'buried';
        answer := own.key;
        RETURN;
    END IF;
    IF holder.key IS NOT NULL AND holder.process <> a_process THEN
        IF own.key IS NOT NULL OR (
            NOT holder.discharged AND holder.buried_by IS NULL AND holder.seen_until > at_now
            AND holder.process <> ALL (instead_of)
        ) THEN
            outcome := 'taken';
            answer := holder.key;
            RETURN;
        END IF;
        UPDATE {schema}.workers SET replaced = true, cards = ''::bytea WHERE key = holder.key;
    END IF;
    INSERT INTO {schema}.workers AS w (name, process, host, boot_id, pid, started, version, cards, agents, slots, free,
        engine, since, seen_until)
    VALUES (a_name, a_process, a_host, a_boot_id, a_pid, a_started, a_version, some_cards, some_agents, some_slots,
        some_free, an_engine, at_now, at_now + seconds)
    ON CONFLICT (name, process) DO UPDATE SET version = excluded.version, cards = excluded.cards,
        agents = excluded.agents, slots = excluded.slots, free = excluded.free, engine = excluded.engine,
        seen_until = excluded.seen_until, discharged = false
    RETURNING w.key INTO answer;
    outcome := 'enlisted';
END
$$;

CREATE FUNCTION {schema}.discharge(a_process text) RETURNS void LANGUAGE sql AS $$
    UPDATE {schema}.workers SET discharged = true WHERE process = a_process
$$;

-- The key of whoever was buried; NULL: there is none of this name.
CREATE FUNCTION {schema}.bury(a_name text, who bytea, why bytea, told_now double precision) RETURNS bigint
LANGUAGE sql AS $$
    UPDATE {schema}.workers SET discharged = false, buried_by = coalesce(buried_by, who),
        reason = CASE WHEN buried_by IS NULL THEN why ELSE reason END,
        buried_at = coalesce(buried_at, told_now, extract(epoch FROM clock_timestamp()))
    WHERE name = a_name AND NOT replaced RETURNING key
$$;

UPDATE {schema}.version SET version = 2;
