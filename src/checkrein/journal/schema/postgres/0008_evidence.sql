-- Text that watchers withheld: for operators and bundles only. Its hash and length are in watcher.flagged.

CREATE TABLE {schema}.withheld (
    run      bigint NOT NULL,
    flag     bytea NOT NULL,          -- the id of the watcher.flagged
    call     bytea NOT NULL,          -- of an attempt, as in `chunks`
    "offset" bigint NOT NULL,
    text     bytea NOT NULL,
    PRIMARY KEY (run, flag)
);

CREATE FUNCTION {schema}.write_withheld(a_run text, a_flag bytea, a_call bytea, an_offset bigint, a_text bytea)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO {schema}.withheld (run, flag, call, "offset", text)
    SELECT r.key, a_flag, a_call, an_offset, a_text FROM {schema}.runs r WHERE r.id = a_run
    ON CONFLICT (run, flag) DO NOTHING
$$;

-- What was signed, in one list for the whole store; each body names the entry before it by its hash.

CREATE TABLE {schema}.signed (
    number    bigint PRIMARY KEY,
    run       text NOT NULL,          -- empty: about several, or none
    body      bytea NOT NULL,
    key       bytea NOT NULL,
    signature bytea NOT NULL,
    leaves    bytea NOT NULL
);
CREATE INDEX signed_by_run ON {schema}.signed (run) WHERE run <> '';

-- True also for a repeat whose answer was lost on its way.
CREATE FUNCTION {schema}.add_signed(
    a_number bigint, a_run text, a_body bytea, a_key bytea, a_signature bytea, the_leaves bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE {schema}.signed IN SHARE ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT 1 FROM {schema}.signed s WHERE s.number = a_number AND s.body = a_body) THEN
        RETURN true;
    END IF;
    IF a_number <> 1 + (SELECT coalesce(max(s.number), 0) FROM {schema}.signed s) THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.signed (number, run, body, key, signature, leaves)
    VALUES (a_number, a_run, a_body, a_key, a_signature, the_leaves);
    RETURN true;
END
$$;

-- A run as a whole, once it is over and nobody has it, with what is left of it in the log; what stands in the way, in a word.
CREATE FUNCTION {schema}.delete_run(
    a_run text, finished text[], a_number bigint, its_run text, a_body bytea, a_key bytea, a_signature bytea,
    the_leaves bytea
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    the_key bigint;
    a_status text;
BEGIN
    SELECT r.key, h.status INTO the_key, a_status FROM {schema}.runs r JOIN {schema}.heads h ON h.run = r.key
    WHERE r.id = a_run FOR UPDATE OF h;
    IF NOT FOUND THEN
        IF EXISTS (SELECT 1 FROM {schema}.signed s WHERE s.number = a_number AND s.body = a_body) THEN
            RETURN 'deleted';  -- before, and the answer was lost on its way
        END IF;
        RETURN 'missing';
    END IF;
    IF a_status <> ALL (finished) OR EXISTS (SELECT 1 FROM {schema}.leases l WHERE l.run = the_key) THEN
        RETURN 'live';
    END IF;
    IF EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.parent = a_run) THEN
        RETURN 'parent';
    END IF;
    IF NOT {schema}.add_signed(a_number, its_run, a_body, a_key, a_signature, the_leaves) THEN
        RETURN 'late';
    END IF;
    DELETE FROM {schema}.events e WHERE e.run = the_key;
    DELETE FROM {schema}.chunks c WHERE c.run = the_key;
    DELETE FROM {schema}.files f WHERE f.run = the_key;
    DELETE FROM {schema}.withheld w WHERE w.run = the_key;
    DELETE FROM {schema}.effects e WHERE e.run = the_key;
    DELETE FROM {schema}.snapshots s WHERE s.run = the_key;
    DELETE FROM {schema}.fences f WHERE f.scope = 'run' AND f.name = convert_to(a_run, 'UTF8');
    DELETE FROM {schema}.heads h WHERE h.run = the_key;
    DELETE FROM {schema}.runs r WHERE r.key = the_key;
    RETURN 'deleted';
END
$$;

UPDATE {schema}.version SET version = version + 1;
