-- No stop waits for a version: a run that is being stopped or undone is left to those who have its version for a second
-- at most, in which whoever of them lives takes it. Whoever else does changes nothing about its version.

CREATE FUNCTION {schema}.is_left_to_others(
    h {schema}.heads, l {schema}.leases, versions text[], version_seconds double precision, at_now double precision
) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT h.version = ANY (versions) AND at_now < CASE
        WHEN h.status IN ('queued', 'running', 'redirecting', 'paused') THEN greatest(h.at, l.deadline) + version_seconds
        ELSE h.at + least(version_seconds, 1) END
$$;

CREATE OR REPLACE FUNCTION {schema}.free_runs(
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
    AND NOT {schema}.is_left_to_others(h, l, versions, version_seconds, at_now)
    ORDER BY r.key
$$;

CREATE OR REPLACE FUNCTION {schema}.claim(
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
        UPDATE {schema}.heads h SET version = a_version WHERE h.run = a_key AND h.version <> a_version
        AND h.status IN ('queued', 'running', 'redirecting', 'paused');
    END IF;
END
$$;

UPDATE {schema}.version SET version = version + 1;
