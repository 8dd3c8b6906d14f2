-- A journal in one schema of a PostgreSQL database. Only `events` is the truth; the chain in `hash` shows whether it was
-- touched. Everything else is derived from events, guards them, or is text that may be lost.
-- Whatever people and models write is bytes of UTF-8: `text` takes no NUL.

CREATE TABLE {schema}.version (
    version      integer NOT NULL,
    least_reader integer NOT NULL,   -- the lowest schema that code must know to read here
    least_writer integer NOT NULL    -- and to write
);
INSERT INTO {schema}.version VALUES (1, 1, 1);

CREATE TABLE {schema}.runs (
    key        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,   -- within a thread in the order of creation
    id         text COLLATE "C" NOT NULL UNIQUE,
    agent      text COLLATE "C" NOT NULL,
    owner      bytea NOT NULL,
    thread     bytea NOT NULL,
    parent     text COLLATE "C",
    root       text COLLATE "C",
    created_at double precision NOT NULL,
    goal       bytea NOT NULL
);
CREATE INDEX runs_by_thread ON {schema}.runs (thread, key);
CREATE INDEX runs_by_owner ON {schema}.runs (owner, key);
CREATE INDEX runs_by_agent ON {schema}.runs (agent, key);
CREATE INDEX runs_by_root ON {schema}.runs (root, key) WHERE root IS NOT NULL;
CREATE INDEX runs_by_parent ON {schema}.runs (parent) WHERE parent IS NOT NULL;

-- Where each run stands: what an append compares and sets. Of its columns only `status` is in an index, and changes
-- rarely; every other update stays within its page.
CREATE TABLE {schema}.heads (
    run     bigint PRIMARY KEY,
    seq     bigint NOT NULL,
    decided bigint NOT NULL,          -- seq of the last deciding event
    epoch   bigint NOT NULL,
    status  text COLLATE "C" NOT NULL,
    at      double precision NOT NULL,
    hash    bytea NOT NULL,
    cover   smallint NOT NULL,        -- the strongest fence over this very run: 0 none, 1 a cancel's, 2 a halt's
    changed double precision NOT NULL -- by the clock of the server
) WITH (fillfactor = 50);
CREATE INDEX heads_by_status ON {schema}.heads (status);

CREATE TABLE {schema}.events (
    run  bigint NOT NULL,
    seq  bigint NOT NULL,
    id   bytea NOT NULL,
    at   double precision NOT NULL,
    type text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, seq),
    UNIQUE (run, id)
);
CREATE INDEX events_verbs ON {schema}.events (run, at) WHERE type = 'verb.accepted';

CREATE TABLE {schema}.leases (
    run      bigint PRIMARY KEY,      -- its epoch is that of the head
    process  text COLLATE "C" NOT NULL,
    host     text COLLATE "C" NOT NULL,
    boot_id  text COLLATE "C" NOT NULL,
    pid      bigint NOT NULL,
    started  double precision NOT NULL,
    deadline double precision NOT NULL,   -- by the clock of the server
    until    double precision NOT NULL,   -- by a clock that nobody sets, that of the boot `boot_id`; 0: not known
    token    text COLLATE "C" NOT NULL,   -- of the claim, so that one whose answer was lost is known again
    previous bytea                        -- who held it before that claim
) WITH (fillfactor = 50);
CREATE INDEX leases_by_process ON {schema}.leases (process);

CREATE TABLE {schema}.fences (
    scope  text COLLATE "C" NOT NULL,
    name   bytea NOT NULL,
    halt   boolean NOT NULL,
    source bytea NOT NULL,            -- the name it was made for: `name` itself, or that of a run above
    by     bytea NOT NULL,
    reason bytea NOT NULL,
    at     double precision NOT NULL,
    PRIMARY KEY (scope, name, halt, source)
);

-- Always empty. An append holds it in ROW SHARE mode while it looks at `fences`; whoever puts up a fence first takes it
-- in EXCLUSIVE mode, so no append that began before the fence was there is still under way when it is.
CREATE TABLE {schema}.gate (nothing boolean);

CREATE TABLE {schema}.effects (
    run    bigint NOT NULL,
    id     bytea NOT NULL,
    state  text COLLATE "C" NOT NULL,
    opened bigint NOT NULL,           -- seq of its last effect.opened
    wanted boolean NOT NULL,
    body   bytea NOT NULL,
    PRIMARY KEY (run, id)
);
CREATE INDEX effects_wanted ON {schema}.effects (run) WHERE wanted;

-- A row is one chunk, or all chunks of a call that has finished: then `offsets` and `sizes` say where each began, in
-- characters, and how many bytes of `text` it has.
CREATE TABLE {schema}.chunks (
    run      bigint NOT NULL,
    call     bytea NOT NULL,
    "offset" bigint NOT NULL,
    text     bytea NOT NULL,
    offsets  bigint[],
    sizes    bigint[],
    PRIMARY KEY (run, call, "offset")
);

CREATE TABLE {schema}.snapshots (
    run     bigint PRIMARY KEY,
    seq     bigint NOT NULL,
    version text NOT NULL,            -- which shape of state this is
    state   bytea NOT NULL
);

-- Each function below is one transaction of several statements, each of which sees what was committed before it began.
-- They are called in a single round trip: the server never waits for a client while a lock is held.

CREATE FUNCTION {schema}.wide_cover(a_run text, a_root text, an_agent text, an_owner bytea) RETURNS smallint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(max(CASE WHEN halt THEN 2 ELSE 1 END), 0)::smallint FROM {schema}.fences WHERE scope <> 'run' AND (
        scope = 'all'
        OR (scope = 'root' AND name = convert_to(coalesce(a_root, a_run), 'UTF8'))
        OR (scope = 'agent' AND name = convert_to(an_agent, 'UTF8'))
        OR (scope = 'owner' AND name = an_owner)
    )
$$;

CREATE FUNCTION {schema}.create_run(
    a_run text, an_agent text, an_owner bytea, a_thread bytea, a_parent text, a_root text, a_status text,
    an_at double precision, a_goal bytea, an_id bytea, a_type text, a_hash bytea, a_body bytea, a_channel text, a_note text,
    busy_statuses text[],   -- a topmost run of the thread in one of these refuses the creation
    OUT outcome text, OUT found_root text, OUT busy_with text
) LANGUAGE plpgsql AS $$
DECLARE
    its_cover smallint;
    its_status text;
    new_key bigint;
BEGIN
    PERFORM 1 FROM {schema}.gate WHERE false FOR SHARE;
    -- In one thread keys are drawn in the order of commits: who comes first is first for everybody.
    PERFORM pg_advisory_xact_lock(hashtextextended(encode(a_thread, 'hex'), 7013));
    IF EXISTS (SELECT 1 FROM {schema}.runs WHERE id = a_run) THEN
        outcome := 'exists';
        RETURN;
    END IF;
    IF a_parent IS NOT NULL THEN
        -- The lock keeps a cancel of the parent waiting until this run is there to be fenced with it.
        SELECT r.root, h.status, greatest(h.cover, {schema}.wide_cover(r.id, r.root, r.agent, r.owner))
        INTO found_root, its_status, its_cover
        FROM {schema}.runs r JOIN {schema}.heads h ON h.run = r.key WHERE r.id = a_parent FOR SHARE OF h;
        IF NOT FOUND THEN
            outcome := 'no parent';
            RETURN;
        END IF;
    END IF;
    IF a_root IS DISTINCT FROM (CASE WHEN a_parent IS NULL THEN NULL ELSE coalesce(found_root, a_parent) END) THEN
        outcome := 'another root';
        RETURN;
    END IF;
    IF coalesce(its_cover, 0) > 0
        OR EXISTS (SELECT 1 FROM {schema}.fences WHERE scope = 'run' AND name = convert_to(a_run, 'UTF8'))
        OR {schema}.wide_cover(a_run, a_root, an_agent, an_owner) > 0
    THEN
        outcome := 'fenced';
        RETURN;
    END IF;
    IF its_status = ANY (ARRAY['completed', 'failed', 'cancelled', 'killed']) THEN
        outcome := 'parent over';
        RETURN;
    END IF;
    -- Nobody else creates a run on this thread until this one is committed: the lock above sees to it.
    SELECT r.id INTO busy_with FROM {schema}.runs r JOIN {schema}.heads h ON h.run = r.key
    WHERE r.thread = a_thread AND r.owner = an_owner AND r.parent IS NULL AND h.status = ANY (busy_statuses)
    ORDER BY r.key LIMIT 1;
    IF busy_with IS NOT NULL THEN
        outcome := 'busy';
        RETURN;
    END IF;
    INSERT INTO {schema}.runs (id, agent, owner, thread, parent, root, created_at, goal)
    VALUES (a_run, an_agent, an_owner, a_thread, a_parent, a_root, an_at, a_goal) RETURNING key INTO new_key;
    INSERT INTO {schema}.heads (run, seq, decided, epoch, status, at, hash, cover, changed)
    VALUES (new_key, 1, 1, 0, a_status, an_at, a_hash, 0, extract(epoch FROM clock_timestamp()));
    INSERT INTO {schema}.events (run, seq, id, at, type, hash, body)
    VALUES (new_key, 1, an_id, an_at, a_type, a_hash, a_body);
    PERFORM pg_notify(a_channel, a_note);
    outcome := 'created';
END
$$;

CREATE FUNCTION {schema}.lock_tree(top text, OUT keys bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    found_keys bigint[];
BEGIN
    keys := ARRAY[]::bigint[];
    LOOP
        WITH RECURSIVE below (key, id) AS (
            SELECT key, id FROM {schema}.runs WHERE id = top
            UNION
            SELECT r.key, r.id FROM {schema}.runs r JOIN below b ON r.parent = b.id
        )
        SELECT coalesce(array_agg(key ORDER BY key), ARRAY[]::bigint[]) INTO found_keys FROM below;
        EXIT WHEN found_keys <@ keys;
        -- Ascending, as every append does it. Nobody can create a run below one that is locked.
        PERFORM 1 FROM {schema}.heads WHERE run = ANY (found_keys) ORDER BY run FOR NO KEY UPDATE;
        keys := found_keys;
    END LOOP;
END
$$;

CREATE FUNCTION {schema}.fence_tree(
    keys bigint[], top bytea, is_halt boolean, who bytea, why bytea, an_at double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.fences (scope, name, halt, source, by, reason, at)
    VALUES ('run', top, is_halt, top, who, why, an_at) ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.fences (scope, name, halt, source, by, reason, at)
    SELECT 'run', convert_to(id, 'UTF8'), is_halt, top, who, why, an_at FROM {schema}.runs
    WHERE key = ANY (keys) AND convert_to(id, 'UTF8') <> top ON CONFLICT DO NOTHING;
    UPDATE {schema}.heads SET cover = greatest(cover, CASE WHEN is_halt THEN 2 ELSE 1 END) WHERE run = ANY (keys);
END
$$;

CREATE FUNCTION {schema}.append_and_fence(
    a_run text, a_key bigint, known_seq bigint, known_epoch bigint, stopped_by bigint,
    new_seq bigint, new_decided bigint, new_status text, new_at double precision, new_hash bytea,
    event_seqs bigint[], event_ids bytea[], event_ats double precision[], event_types text[], event_hashes bytea[],
    event_bodies bytea[],
    effect_ids bytea[], effect_states text[], effect_opened bigint[], effect_wanted boolean[], effect_bodies bytea[],
    is_halt boolean, who bytea, why bytea, an_at double precision, a_channel text, a_note text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    keys bigint[];
BEGIN
    PERFORM 1 FROM {schema}.gate WHERE false FOR SHARE;
    keys := {schema}.lock_tree(a_run);
    UPDATE {schema}.heads SET seq = new_seq, decided = new_decided, status = new_status, at = new_at, hash = new_hash,
        changed = extract(epoch FROM clock_timestamp())
    WHERE run = a_key AND seq = known_seq AND epoch = known_epoch AND cover < stopped_by AND (
        SELECT {schema}.wide_cover(r.id, r.root, r.agent, r.owner) FROM {schema}.runs r WHERE r.key = a_key
    ) < stopped_by;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.events (run, seq, id, at, type, hash, body)
    SELECT a_key, e.* FROM unnest(event_seqs, event_ids, event_ats, event_types, event_hashes, event_bodies) e;
    INSERT INTO {schema}.effects AS f (run, id, state, opened, wanted, body)
    SELECT a_key, e.* FROM unnest(effect_ids, effect_states, effect_opened, effect_wanted, effect_bodies) e
    ON CONFLICT (run, id) DO UPDATE
        SET state = excluded.state, opened = excluded.opened, wanted = excluded.wanted, body = excluded.body;
    PERFORM {schema}.fence_tree(keys, convert_to(a_run, 'UTF8'), is_halt, who, why, an_at);
    PERFORM pg_notify(a_channel, a_note);
    RETURN true;
END
$$;

CREATE FUNCTION {schema}.put_fence(
    a_scope text, a_name bytea, is_halt boolean, who bytea, why bytea, an_at double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE {schema}.gate IN EXCLUSIVE MODE;
    IF a_scope = 'run' THEN
        PERFORM {schema}.fence_tree(
            {schema}.lock_tree(convert_from(a_name, 'UTF8')), a_name, is_halt, who, why, an_at);
    ELSE
        INSERT INTO {schema}.fences (scope, name, halt, source, by, reason, at)
        VALUES (a_scope, a_name, is_halt, a_name, who, why, an_at) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

CREATE FUNCTION {schema}.lift_fence(a_scope text, a_name bytea) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    names bytea[];
BEGIN
    LOCK TABLE {schema}.gate IN EXCLUSIVE MODE;
    WITH gone AS (
        DELETE FROM {schema}.fences WHERE scope = a_scope AND source = a_name AND halt RETURNING name
    )
    SELECT array_agg(name) INTO names FROM gone;
    IF a_scope = 'run' AND names IS NOT NULL THEN
        PERFORM 1 FROM {schema}.heads h JOIN {schema}.runs r ON r.key = h.run
        WHERE convert_to(r.id, 'UTF8') = ANY (names) ORDER BY h.run FOR NO KEY UPDATE OF h;
        UPDATE {schema}.heads h SET cover = coalesce((
            SELECT max(CASE WHEN f.halt THEN 2 ELSE 1 END) FROM {schema}.fences f
            WHERE f.scope = 'run' AND f.name = convert_to(r.id, 'UTF8')
        ), 0)
        FROM {schema}.runs r WHERE r.key = h.run AND r.id = ANY (
            SELECT convert_from(n, 'UTF8') FROM unnest(names) n
        );
    END IF;
    RETURN names IS NOT NULL;
END
$$;

CREATE FUNCTION {schema}.claim(
    a_run text, a_process text, a_host text, a_boot_id text, a_pid bigint, a_started double precision,
    a_token text, seconds double precision, by_force boolean, wanted_epoch bigint,
    told_now double precision, steady_now double precision,
    OUT outcome text, OUT new_epoch bigint, OUT new_deadline double precision, OUT new_until double precision,
    OUT was_held bytea
) LANGUAGE plpgsql AS $$
DECLARE
    a_key bigint;
    held {schema}.leases%ROWTYPE;
    at_now double precision;
BEGIN
    SELECT h.run, h.epoch INTO a_key, new_epoch FROM {schema}.runs r JOIN {schema}.heads h ON h.run = r.key
    WHERE r.id = a_run FOR NO KEY UPDATE OF h;
    IF NOT FOUND THEN
        outcome := 'no run';
        RETURN;
    END IF;
    SELECT * INTO held FROM {schema}.leases WHERE run = a_key FOR NO KEY UPDATE;
    at_now := coalesce(told_now, extract(epoch FROM clock_timestamp()));
    IF held.token = a_token THEN
        -- Claimed before, and the answer was lost on its way.
        outcome := 'claimed';
        new_deadline := held.deadline;
        new_until := held.until;
        was_held := held.previous;
        RETURN;
    END IF;
    IF wanted_epoch <= new_epoch THEN
        outcome := 'stale';
        RETURN;
    END IF;
    IF held.run IS NOT NULL AND NOT by_force AND held.process <> a_process AND (
        CASE WHEN held.until > 0 AND a_boot_id <> '' AND a_boot_id = held.boot_id
        THEN held.until > steady_now ELSE held.deadline > at_now END
    ) THEN
        outcome := 'held';
        RETURN;
    END IF;
    new_epoch := coalesce(wanted_epoch, new_epoch + 1);
    new_deadline := at_now + seconds;
    new_until := steady_now + seconds;
    IF held.run IS NOT NULL THEN
        was_held := convert_to(json_build_object('process', held.process, 'host', held.host, 'boot_id', held.boot_id,
            'pid', held.pid, 'started', held.started)::text, 'UTF8');
    END IF;
    UPDATE {schema}.heads SET epoch = new_epoch WHERE run = a_key;
    INSERT INTO {schema}.leases (run, process, host, boot_id, pid, started, deadline, until, token, previous)
    VALUES (a_key, a_process, a_host, a_boot_id, a_pid, a_started, new_deadline, new_until, a_token, was_held)
    ON CONFLICT (run) DO UPDATE SET process = excluded.process, host = excluded.host, boot_id = excluded.boot_id,
        pid = excluded.pid, started = excluded.started, deadline = excluded.deadline, until = excluded.until,
        token = excluded.token, previous = excluded.previous;
    outcome := 'claimed';
END
$$;

-- Whether a lease is in force for somebody who lives in this boot, at this time by both clocks.
CREATE FUNCTION {schema}.in_force(
    held {schema}.leases, a_boot_id text, at_now double precision, steady_now double precision
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT held.run IS NOT NULL AND CASE WHEN held.until > 0 AND a_boot_id <> '' AND a_boot_id = held.boot_id
        THEN held.until > steady_now ELSE held.deadline > at_now END
$$;

CREATE FUNCTION {schema}.free_runs(
    agents text[], driven text[], unfinished text[], queued text, except_for text[], a_process text, a_boot_id text,
    at_now double precision, steady_now double precision
) RETURNS TABLE (key bigint, id text) LANGUAGE sql STABLE AS $$
    SELECT r.key, r.id FROM {schema}.runs r JOIN {schema}.heads h ON h.run = r.key
    LEFT JOIN {schema}.leases l ON l.run = r.key
    WHERE r.agent = ANY (agents) AND h.status = ANY (driven) AND r.id <> ALL (except_for)
    AND NOT {schema}.in_force(l, a_boot_id, at_now, steady_now)
    AND NOT EXISTS (
        SELECT 1 FROM {schema}.runs p JOIN {schema}.leases m ON m.run = p.key
        WHERE p.id = r.parent AND m.process <> a_process AND {schema}.in_force(m, a_boot_id, at_now, steady_now)
    )
    AND (h.status <> queued OR NOT EXISTS (
        SELECT 1 FROM {schema}.runs b JOIN {schema}.heads g ON g.run = b.key
        WHERE b.thread = r.thread AND b.owner = r.owner AND b.parent IS NULL AND b.key < r.key
        AND g.status = ANY (unfinished)
    ))
    ORDER BY r.key
$$;

CREATE FUNCTION {schema}.claim_free(
    agents text[], driven text[], unfinished text[], queued text, except_for text[],
    a_process text, a_host text, a_boot_id text, a_pid bigint, a_started double precision,
    a_token text, seconds double precision, most bigint, told_now double precision, steady_now double precision
) RETURNS TABLE (run text, epoch bigint, deadline double precision, was_held bytea) LANGUAGE plpgsql AS $$
DECLARE
    one record;
    claimed record;
    at_now double precision := coalesce(told_now, extract(epoch FROM clock_timestamp()));
    left_over bigint := most;
BEGIN
    IF EXISTS (SELECT 1 FROM {schema}.leases l WHERE l.token = a_token) THEN
        -- Claimed before, and the answer was lost on its way.
        RETURN QUERY SELECT r.id, h.epoch, l.deadline, l.previous FROM {schema}.leases l
            JOIN {schema}.runs r ON r.key = l.run JOIN {schema}.heads h ON h.run = l.run WHERE l.token = a_token;
        RETURN;
    END IF;
    FOR one IN
        SELECT f.key, f.id FROM {schema}.free_runs(
            agents, driven, unfinished, queued, except_for, a_process, a_boot_id, at_now, steady_now) f
    LOOP
        EXIT WHEN left_over <= 0;
        -- What somebody else claims at this moment is theirs; what they have claimed since this began shows below.
        PERFORM 1 FROM {schema}.heads h WHERE h.run = one.key FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        CONTINUE WHEN EXISTS (
            SELECT 1 FROM {schema}.leases l
            WHERE l.run = one.key AND {schema}.in_force(l, a_boot_id, at_now, steady_now)
        );
        SELECT * INTO claimed FROM {schema}.claim(
            one.id, a_process, a_host, a_boot_id, a_pid, a_started, a_token, seconds, false, NULL, told_now, steady_now);
        CONTINUE WHEN claimed.outcome <> 'claimed';
        run := one.id;
        epoch := claimed.new_epoch;
        deadline := claimed.new_deadline;
        was_held := claimed.was_held;
        left_over := left_over - 1;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION {schema}.write_chunks(
    a_runs text[], calls bytea[], offsets_ bigint[], texts bytea[], a_channel text, a_note text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Text is not acknowledged: its commit need not wait for the disk. Only for this transaction.
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO {schema}.chunks (run, call, "offset", text)
    SELECT r.key, c.call, c.at, c.text FROM unnest(a_runs, calls, offsets_, texts) AS c (run, call, at, text)
    JOIN {schema}.runs r ON r.id = c.run ON CONFLICT DO NOTHING;
    PERFORM pg_notify(a_channel, a_note);
END
$$;

CREATE FUNCTION {schema}.join_chunks(a_run text, a_call bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    a_key bigint;
    first bigint;
    whole bytea;
    its_offsets bigint[];
    its_sizes bigint[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT key INTO a_key FROM {schema}.runs WHERE id = a_run;
    IF EXISTS (SELECT 1 FROM {schema}.chunks WHERE run = a_key AND call = a_call AND offsets IS NOT NULL) THEN
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM {schema}.chunks WHERE run = a_key AND call = a_call AND offsets IS NULL RETURNING "offset", text
    )
    SELECT min("offset"), string_agg(text, ''::bytea ORDER BY "offset"), array_agg("offset" ORDER BY "offset"),
        array_agg(length(text)::bigint ORDER BY "offset")
    INTO first, whole, its_offsets, its_sizes FROM gone;
    IF first IS NOT NULL THEN
        INSERT INTO {schema}.chunks (run, call, "offset", text, offsets, sizes)
        VALUES (a_key, a_call, first, whole, its_offsets, its_sizes) ON CONFLICT DO NOTHING;
    END IF;
END
$$;
