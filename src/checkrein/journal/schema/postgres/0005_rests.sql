-- A run that waits for a person was let go by its driver: it wants none as long as its last event is this one.
ALTER TABLE {schema}.heads ADD COLUMN rests bigint NOT NULL DEFAULT 0;

-- Of whoever drove the run last.
ALTER TABLE {schema}.heads ADD COLUMN version text COLLATE "C" NOT NULL DEFAULT '';

-- The functions of these names with fewer arguments are those that earlier versions call.

CREATE FUNCTION {schema}.claim(
    a_run text, a_process text, a_host text, a_boot_id text, a_pid bigint, a_started double precision, a_token text,
    seconds double precision, by_force boolean, wanted_epoch bigint, told_now double precision,
    steady_now double precision, a_version text,
    OUT outcome text, OUT new_epoch bigint, OUT new_deadline double precision, OUT new_until double precision,
    OUT was_held bytea, OUT was_until double precision
) LANGUAGE plpgsql AS $$
DECLARE
    a_key bigint;
BEGIN
    SELECT h.run INTO a_key FROM {schema}.runs r JOIN {schema}.heads h ON h.run = r.key
    WHERE r.id = a_run FOR NO KEY UPDATE OF h;
    SELECT l.until INTO was_until FROM {schema}.leases l WHERE l.run = a_key AND l.token <> a_token;
    SELECT c.outcome, c.new_epoch, c.new_deadline, c.new_until, c.was_held
    INTO outcome, new_epoch, new_deadline, new_until, was_held
    FROM {schema}.claim(a_run, a_process, a_host, a_boot_id, a_pid, a_started, a_token, seconds, by_force, wanted_epoch,
        told_now, steady_now) c;
    IF outcome = 'claimed' AND a_version <> '' THEN
        UPDATE {schema}.heads h SET version = a_version WHERE h.run = a_key AND h.version <> a_version;
    END IF;
END
$$;

CREATE FUNCTION {schema}.free_runs(
    agents text[], wanted text[], if_left text[], unfinished text[], queued text, except_for text[], not_of text[],
    versions text[], version_seconds double precision, a_process text, a_boot_id text,
    at_now double precision, steady_now double precision
) RETURNS TABLE (key bigint, id text) LANGUAGE sql STABLE AS $$
    SELECT r.key, r.id FROM (
        SELECT h.run FROM {schema}.heads h WHERE h.status = ANY (wanted) AND h.rests <> h.seq
        UNION
        SELECT l.run FROM {schema}.leases l JOIN {schema}.heads h ON h.run = l.run WHERE h.status = ANY (if_left)
    ) c JOIN {schema}.runs r ON r.key = c.run JOIN {schema}.heads h ON h.run = c.run
    LEFT JOIN {schema}.leases l ON l.run = c.run
    WHERE r.agent = ANY (agents) AND r.id <> ALL (except_for)
    AND NOT {schema}.in_force(l, a_boot_id, at_now, steady_now)
    AND (l.run IS NULL OR l.process <> ALL (not_of))
    AND NOT EXISTS (
        SELECT 1 FROM {schema}.runs p JOIN {schema}.leases m ON m.run = p.key
        WHERE p.id = r.parent AND m.process <> a_process
        AND {schema}.in_force(m, a_boot_id, at_now, steady_now)
    )
    AND (h.status <> queued OR NOT EXISTS (
        SELECT 1 FROM {schema}.runs b JOIN {schema}.heads g ON g.run = b.key
        WHERE b.thread = r.thread AND b.owner = r.owner AND b.parent IS NULL AND b.key < r.key
        AND g.status = ANY (unfinished)
    ))
    AND (h.version <> ALL (versions) OR greatest(h.at, l.deadline) + version_seconds <= at_now)
    ORDER BY r.key
$$;

CREATE FUNCTION {schema}.claim_free(
    agents text[], wanted text[], if_left text[], unfinished text[], queued text, except_for text[], not_of text[],
    versions text[], version_seconds double precision,
    a_process text, a_host text, a_boot_id text, a_pid bigint, a_started double precision, a_version text,
    a_token text, seconds double precision, most bigint, told_now double precision, steady_now double precision
) RETURNS TABLE (run text, epoch bigint, deadline double precision, was_held bytea, was_until double precision)
LANGUAGE plpgsql AS $$
DECLARE
    one record;
    claimed record;
    at_now double precision := coalesce(told_now, extract(epoch FROM clock_timestamp()));
    left_over bigint := most;
BEGIN
    IF EXISTS (SELECT 1 FROM {schema}.leases l WHERE l.token = a_token) THEN
        -- Claimed before, and the answer was lost on its way.
        RETURN QUERY SELECT r.id, h.epoch, l.deadline, l.previous, 0.0::double precision FROM {schema}.leases l
            JOIN {schema}.runs r ON r.key = l.run JOIN {schema}.heads h ON h.run = l.run WHERE l.token = a_token;
        RETURN;
    END IF;
    FOR one IN
        SELECT f.key, f.id FROM {schema}.free_runs(agents, wanted, if_left, unfinished, queued, except_for, not_of,
            versions, version_seconds, a_process, a_boot_id, at_now, steady_now) f
    LOOP
        EXIT WHEN left_over <= 0;
        -- What somebody else claims at this moment is theirs; what they have claimed since this began shows below.
        PERFORM 1 FROM {schema}.heads h WHERE h.run = one.key FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        CONTINUE WHEN EXISTS (
            SELECT 1 FROM {schema}.leases l
            WHERE l.run = one.key AND {schema}.in_force(l, a_boot_id, at_now, steady_now)
        );
        SELECT * INTO claimed FROM {schema}.claim(one.id, a_process, a_host, a_boot_id, a_pid, a_started, a_token,
            seconds, false, NULL, told_now, steady_now, a_version);
        CONTINUE WHEN claimed.outcome <> 'claimed';
        run := one.id;
        epoch := claimed.new_epoch;
        deadline := claimed.new_deadline;
        was_held := claimed.was_held;
        was_until := claimed.was_until;
        left_over := left_over - 1;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION {schema}.release(a_run text, an_epoch bigint, a_process text, rests_at bigint, hands_over boolean)
RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    a_key bigint;
BEGIN
    SELECT h.run INTO a_key FROM {schema}.runs r JOIN {schema}.heads h ON h.run = r.key
    JOIN {schema}.leases l ON l.run = r.key
    WHERE r.id = a_run AND h.epoch = an_epoch AND l.process = a_process FOR NO KEY UPDATE OF h;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF hands_over THEN
        UPDATE {schema}.leases l SET deadline = 0, until = 0 WHERE l.run = a_key;
    ELSE
        DELETE FROM {schema}.leases l WHERE l.run = a_key;
    END IF;
    IF rests_at > 0 THEN
        UPDATE {schema}.heads h SET rests = rests_at WHERE h.run = a_key;
    END IF;
    RETURN NEXT a_key;
END
$$;

UPDATE {schema}.version SET version = version + 1;
