-- The roles of a store, which may read its tables and write them only through functions. Applied by `store init --roles`
-- and `store migrate --roles`, as often as one likes; no part of the schema's version.
--
-- A function below runs as the owner of the schema, with a search path of its own. It believes nothing that it can find out
-- itself: what an event says is read from its bytes, and heads, hashes and fences follow from that. `session_user` is
-- whoever has logged in, also within such a function. What it refuses is an `insufficient_privilege` whose hint is the role
-- that it takes.

-- Callers look at this when they open a journal. A later number still answers those who know an earlier one.
CREATE OR REPLACE FUNCTION {schema}.roles_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';

CREATE OR REPLACE FUNCTION {schema}.has_role(wanted text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT pg_has_role(session_user, '{name}_' || wanted, 'MEMBER')
$$;

CREATE OR REPLACE FUNCTION {schema}.refuse(what text, wanted text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = what,
        DETAIL = 'refused by the store', HINT = coalesce('{name}_' || wanted, '');
END
$$;

-- A transaction that keeps its first snapshot would overlook a fence that was put up since.
CREATE OR REPLACE FUNCTION {schema}.check_isolation() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.refuse('write in a transaction that is not read committed', NULL);
    END IF;
END
$$;

-- The bytes of an event as text. Escapes that no text can hold are replaced: they occur in what people and models write,
-- never in a field that is looked at.
CREATE OR REPLACE FUNCTION {schema}.readable(body bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    whole text := convert_from(body, 'UTF8');
BEGIN
    IF position(E'\\u' IN whole) = 0 THEN
        RETURN whole;
    END IF;
    -- Not after a backslash that is itself escaped: then these are six characters of somebody's text.
    RETURN regexp_replace(whole, E'(?<!\\\\)((?:\\\\\\\\)*)\\\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', E'\\1\\\\\\\\ufffd', 'g');
END
$$;

-- The fields of an event that say who may append it and what follows. Keys are taken as they are written and once each, so
-- that nothing is read here otherwise than by whoever reads the journal.
CREATE OR REPLACE FUNCTION {schema}.read_event(
    body bytea, OUT type text, OUT id text, OUT at double precision, OUT status text, OUT kind text, OUT verb text,
    OUT who text, OUT reason text, OUT epoch bigint, OUT call text, OUT decision text, OUT resumes_itself boolean
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    is_plain boolean;
BEGIN
    SELECT count(*) = count(DISTINCT f.key) AND bool_and(f.key ~ '^[a-z_]+$'),
        max(f.value #>> '{}') FILTER (WHERE f.key = 'type'),
        max(f.value #>> '{}') FILTER (WHERE f.key = 'id'),
        max((f.value #>> '{}')::double precision) FILTER (WHERE f.key = 'at'),
        max(f.value #>> '{}') FILTER (WHERE f.key = 'status'),
        max(f.value #>> '{}') FILTER (WHERE f.key = 'kind'),
        max(f.value #>> '{}') FILTER (WHERE f.key = 'verb'),
        max(f.value #>> '{}') FILTER (WHERE f.key = 'by'),
        max(f.value #>> '{}') FILTER (WHERE f.key = 'reason'),
        max((f.value #>> '{}')::bigint) FILTER (WHERE f.key = 'epoch'),
        max(f.value #>> '{}') FILTER (WHERE f.key = 'call'),
        max(f.value #>> '{}') FILTER (WHERE f.key = 'decision'),
        coalesce(bool_or((f.value #>> '{}')::boolean) FILTER (WHERE f.key = 'resumes_itself'), false)
    INTO is_plain, type, id, at, status, kind, verb, who, reason, epoch, call, decision, resumes_itself
    FROM json_each({schema}.readable(body)::json) f;
    IF is_plain IS NOT TRUE OR type IS NULL OR id IS NULL OR at IS NULL OR position(chr(65533) IN id) > 0 THEN
        PERFORM {schema}.refuse('append what cannot be read as an event', NULL);
    END IF;
END
$$;

-- Which role an event takes that comes to a run in this status; NULL where any of them will do.
CREATE OR REPLACE FUNCTION {schema}.role_for(
    type text, verb text, who text, decision text, status text, is_worker boolean
) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN type IN (
            'run.started', 'plan.published', 'step.started', 'step.finished', 'version.chosen', 'call.started', 'stop.delayed',
            'call.reused', 'call.checked', 'effect.opened', 'effect.undone', 'instruction.delivered', 'approval.requested',
            'condition.tripped', 'watcher.flagged', 'retry.scheduled', 'clock.set'
        ) THEN 'worker'
        WHEN type IN ('call.finished', 'call.answered', 'effect.settled', 'effect.in_doubt', 'effect.left') THEN NULL
        WHEN type IN ('verb.settled', 'run.finished') AND status = 'killed' THEN 'operator'
        WHEN type = 'verb.settled' THEN NULL
        WHEN type = 'run.finished' THEN CASE WHEN status = 'cancelled' THEN NULL ELSE 'worker' END
        WHEN type = 'verb.accepted' AND verb = 'halt' THEN 'operator'
        -- The runtime itself pauses, cancels and resumes: a cap, a shutdown, a sub-run with its parent.
        WHEN type = 'verb.accepted' AND who = 'checkrein' AND verb IN ('pause', 'cancel', 'resume') AND is_worker
            THEN 'worker'
        WHEN type = 'approval.decided' AND decision IN ('withdrawn', 'refused') THEN NULL
        WHEN type IN ('verb.joined', 'call.resolved', 'effect.reopened') AND who = 'checkrein' AND is_worker THEN 'worker'
        WHEN type IN (
            'verb.accepted', 'verb.joined', 'approval.decided', 'call.resolved', 'effect.reopened', 'reason.added',
            'check.asked'
        ) THEN 'front'
        ELSE 'nobody'
    END
$$;

-- Whether an event may take a run from one status to another, as in `core/transitions.py`. A start and a settled verb may
-- leave it where it is. The row of a verb is also that of one which repeats or replaces the one in force.
CREATE OR REPLACE FUNCTION {schema}.may_lead(a_type text, a_verb text, before text, after text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT (a_type IN ('run.started', 'verb.settled') AND before = after) OR EXISTS (
        SELECT 1 FROM (VALUES
            ('run.started',   NULL,       '{queued}',                          '{running}'),

            -- What nobody has started can be over in any way.
            ('run.finished',  NULL,       '{queued}',                          '{completed, failed, cancelled, killed}'),
            ('run.finished',  NULL,       '{running, redirecting}',            '{completed, failed}'),
            ('run.finished',  NULL,       '{cancelling, cancelled}',           '{cancelled}'),
            ('run.finished',  NULL,       '{killed}',                          '{killed}'),

            ('verb.accepted', 'pause',    '{queued, running, redirecting}',    '{pausing, paused}'),
            ('verb.accepted', 'pause',    '{pausing, paused}',                 '{pausing, paused}'),
            ('verb.accepted', 'resume',   '{pausing}',                         '{running}'),
            ('verb.accepted', 'resume',   '{paused}',                          '{running, queued}'),
            ('verb.accepted', 'redirect', '{queued}',                          '{queued}'),
            ('verb.accepted', 'redirect', '{running, pausing, redirecting}',   '{redirecting}'),
            ('verb.accepted', 'redirect', '{paused}',                          '{running, queued}'),
            ('verb.accepted', 'cancel',   '{queued, running, pausing}',        '{cancelling}'),
            ('verb.accepted', 'cancel',   '{paused, redirecting, cancelling}', '{cancelling}'),
            ('verb.accepted', 'halt',     '{queued, running, pausing}',        '{killed}'),
            ('verb.accepted', 'halt',     '{paused, redirecting, cancelling}', '{killed}'),
            ('verb.accepted', 'ask',      '{running}',                         '{running}'),
            ('verb.accepted', 'ask',      '{pausing}',                         '{pausing}'),
            ('verb.accepted', 'ask',      '{paused}',                          '{paused}'),
            ('verb.accepted', 'ask',      '{redirecting}',                     '{redirecting}'),
            ('verb.accepted', 'ask',      '{completed}',                       '{completed}'),
            ('verb.accepted', 'ask',      '{failed}',                          '{failed}'),
            ('verb.accepted', 'abort',    '{running}',                         '{running}'),
            ('verb.accepted', 'abort',    '{pausing}',                         '{pausing}'),
            ('verb.accepted', 'abort',    '{paused}',                          '{paused}'),
            ('verb.accepted', 'abort',    '{redirecting}',                     '{redirecting}'),

            ('verb.settled',  'pause',    '{pausing}',                         '{paused}'),
            ('verb.settled',  'redirect', '{redirecting}',                     '{running}'),
            ('verb.settled',  'cancel',   '{cancelling}',                      '{cancelled}')
        ) AS m (type, verb, befores, afters)
        WHERE m.type = a_type AND (m.verb IS NULL OR m.verb = a_verb)
        AND before = ANY (m.befores::text[]) AND after = ANY (m.afters::text[])
    )
$$;

-- Whether a worker may resume this run: only what the runtime has paused to resume it itself, and what was paused with
-- the run above, whoever did that, once that one goes on.
CREATE OR REPLACE FUNCTION {schema}.resumes_itself(a_key bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT e.verb = 'pause' AND ((e.who = 'checkrein' AND e.resumes_itself) OR (starts_with(e.id, 'held:') AND EXISTS (
            SELECT 1 FROM {schema}.runs r JOIN {schema}.runs p ON p.id = r.parent JOIN {schema}.heads h ON h.run = p.key
            WHERE r.key = a_key AND h.status NOT IN ('pausing', 'paused')
        )))
        FROM {schema}.events v, {schema}.read_event(v.body) AS e
        WHERE v.run = a_key AND v.type = 'verb.accepted' AND e.verb IN ('pause', 'resume', 'redirect')
        ORDER BY v.seq DESC LIMIT 1
    ), false)
$$;

-- The append of a role: as many runs as come together, each taken if it stands where its maker believes. Returns the keys
-- of those that were. `event_runs` is in the order of `runs`.
CREATE OR REPLACE FUNCTION {schema}.append_as_role(
    runs bigint[], seqs bigint[], epochs bigint[], event_runs bigint[], event_bodies bytea[],
    effect_runs bigint[], effect_ids bytea[], effect_states text[], effect_opened bigint[], effect_wanted boolean[],
    effect_bodies bytea[], a_channel text, a_note text
) RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_worker boolean := {schema}.has_role('worker');
    is_front boolean := {schema}.has_role('front');
    is_operator boolean := {schema}.has_role('operator');
    needed text;
    head record;
    e record;
    fence record;
    has_fence boolean := false;
    tree bigint[];
    top text;
    body bytea;
    place integer := 1;
    a_seq bigint;
    a_status text;
    a_decided bigint;
    a_hash bytea;
    is_over boolean;
    has_ended boolean;
    stopped_by integer;
    its_first integer;
    its_last integer;
    -- of all events that are looked at
    all_seqs bigint[] := '{}';
    all_ids bytea[] := '{}';
    all_ats double precision[] := '{}';
    all_types text[] := '{}';
    all_hashes bytea[] := '{}';
    -- of the runs that are moved
    moved bigint[] := '{}';
    new_seqs bigint[] := '{}';
    new_decided bigint[] := '{}';
    new_statuses text[] := '{}';
    new_ats double precision[] := '{}';
    new_hashes bytea[] := '{}';
    its_firsts integer[] := '{}';
    its_lasts integer[] := '{}';
BEGIN
    PERFORM {schema}.check_isolation();
    IF cardinality(runs) <> (SELECT count(DISTINCT r) FROM unnest(runs) r) THEN
        PERFORM {schema}.refuse('append to a run twice at once', NULL);
    END IF;
    PERFORM 1 FROM {schema}.gate WHERE false FOR SHARE;
    IF cardinality(runs) = 1 AND EXISTS (
        SELECT 1 FROM unnest(event_bodies) b
        WHERE position('"verb.accepted"'::bytea IN b) > 0
        AND (position('"cancel"'::bytea IN b) > 0 OR position('"halt"'::bytea IN b) > 0)
    ) THEN
        SELECT r.id INTO top FROM {schema}.runs r WHERE r.key = runs[1];
        tree := {schema}.lock_tree(top);
    END IF;
    PERFORM 1 FROM {schema}.heads WHERE run = ANY (runs) ORDER BY run FOR NO KEY UPDATE;
    FOR head IN
        SELECT g.run, (h.seq = g.seq AND h.epoch = g.epoch) IS TRUE AS is_there, h.seq, h.decided, h.epoch,
            h.status, h.hash, h.cover, r.id, r.root, r.agent, r.owner
        FROM unnest(runs, seqs, epochs) WITH ORDINALITY AS g (run, seq, epoch, place)
        LEFT JOIN {schema}.heads h ON h.run = g.run LEFT JOIN {schema}.runs r ON r.key = g.run ORDER BY g.place
    LOOP
        its_first := place;
        a_seq := head.seq;
        a_status := head.status;
        a_decided := head.decided;
        a_hash := head.hash;
        is_over := head.status IN ('completed', 'failed', 'cancelled', 'killed');
        has_ended := is_over;
        stopped_by := 3;
        WHILE place <= cardinality(event_bodies) AND event_runs[place] = head.run LOOP
            IF NOT head.is_there THEN
                all_seqs := all_seqs || 0::bigint;
                all_ids := all_ids || ''::bytea;
                all_ats := all_ats || 0::double precision;
                all_types := all_types || ''::text;
                all_hashes := all_hashes || ''::bytea;
                place := place + 1;
                CONTINUE;
            END IF;
            body := event_bodies[place];
            e := {schema}.read_event(body);
            needed := {schema}.role_for(e.type, e.verb, e.who, e.decision, e.status, is_worker);
            IF (needed = 'worker' AND NOT is_worker) OR (needed = 'front' AND NOT is_front)
                OR (needed = 'operator' AND NOT is_operator) OR needed = 'nobody'
                OR NOT (is_worker OR is_front OR is_operator)
            THEN
                PERFORM {schema}.refuse(concat_ws(' ', 'append', e.type, e.verb), coalesce(needed, 'worker'));
            END IF;
            IF is_over AND (
                e.type IN ('call.answered', 'call.resolved', 'reason.added', 'effect.settled', 'effect.undone',
                    'effect.in_doubt', 'effect.left', 'effect.reopened')
                OR (e.type = 'call.started' AND e.kind IN ('undo', 'ask'))
                OR (e.type = 'call.finished' AND (starts_with(e.call, 'undo:') OR starts_with(e.call, 'ask:')))
                OR (e.type IN ('verb.accepted', 'verb.settled') AND e.verb = 'ask')
                -- What ends a run settles its verbs and then finishes it, at once.
                OR (e.type IN ('verb.settled', 'run.finished') AND NOT has_ended)
            ) IS NOT TRUE THEN
                PERFORM {schema}.refuse('append ' || e.type || ' to a run that is finished', NULL);
            END IF;
            IF e.type = 'call.started' THEN
                IF e.epoch IS DISTINCT FROM head.epoch THEN
                    PERFORM {schema}.refuse('permit a call under another epoch than that of the lease', NULL);
                END IF;
                IF a_status IN ('pausing', 'paused') AND (e.kind IN ('undo', 'ask')) IS NOT TRUE THEN
                    PERFORM {schema}.refuse('permit a call of a run that is ' || a_status, NULL);
                END IF;
                stopped_by := least(stopped_by, CASE WHEN e.kind = 'undo' THEN 2 ELSE 1 END);
            ELSIF e.type = 'run.started' AND e.epoch IS DISTINCT FROM head.epoch THEN
                PERFORM {schema}.refuse('start a run under another epoch than that of the lease', NULL);
            ELSIF e.type = 'call.answered' AND (e.epoch > head.epoch
                OR e.id IS DISTINCT FROM concat('answered:', e.call, ':', e.epoch))
            THEN
                PERFORM {schema}.refuse('answer for a call under another id', NULL);
            ELSIF e.type = 'verb.accepted' AND needed = 'worker' THEN
                -- It could otherwise end the pause of a person, by a pause of its own that it then resumes.
                IF (e.verb = 'resume' AND NOT {schema}.resumes_itself(head.run))
                    OR (e.verb = 'pause' AND a_status IN ('pausing', 'paused'))
                THEN
                    PERFORM {schema}.refuse('append verb.accepted ' || e.verb, 'front');
                END IF;
            END IF;
            IF e.type IN ('run.started', 'run.finished', 'verb.accepted', 'verb.settled') THEN
                IF {schema}.may_lead(e.type, e.verb, a_status, e.status) IS NOT TRUE THEN
                    PERFORM {schema}.refuse(
                        concat('append ', e.type, ' that takes a run from ', a_status, ' to ', e.status), NULL);
                END IF;
                a_status := e.status;
                is_over := a_status IN ('completed', 'failed', 'cancelled', 'killed');
                has_ended := has_ended OR e.type = 'run.finished';
            END IF;
            IF e.type = 'verb.accepted' AND e.verb IN ('cancel', 'halt') THEN
                IF tree IS NULL THEN
                    PERFORM {schema}.refuse('append a ' || e.verb || ' together with other runs', NULL);
                END IF;
                fence := e;
                has_fence := true;
            END IF;
            a_seq := a_seq + 1;
            IF e.type IN ('run.started', 'run.finished', 'call.resolved', 'effect.reopened', 'verb.accepted',
                'verb.settled', 'approval.requested', 'approval.decided', 'condition.tripped')
            THEN
                a_decided := a_seq;
            END IF;
            a_hash := sha256(a_hash || int8send(a_seq) || body);
            all_seqs := all_seqs || a_seq;
            all_ids := all_ids || convert_to(e.id, 'UTF8');
            all_ats := all_ats || e.at;
            all_types := all_types || e.type;
            all_hashes := all_hashes || a_hash;
            place := place + 1;
        END LOOP;
        its_last := place - 1;
        CONTINUE WHEN NOT head.is_there OR its_last < its_first OR head.cover >= stopped_by;
        CONTINUE WHEN stopped_by < 3 AND {schema}.wide_cover(head.id, head.root, head.agent, head.owner) >= stopped_by;
        moved := moved || head.run;
        new_seqs := new_seqs || a_seq;
        new_decided := new_decided || a_decided;
        new_statuses := new_statuses || a_status;
        new_ats := new_ats || all_ats[its_last];
        new_hashes := new_hashes || a_hash;
        its_firsts := its_firsts || its_first;
        its_lasts := its_lasts || its_last;
    END LOOP;
    IF place <= cardinality(event_bodies) THEN
        PERFORM {schema}.refuse('append events out of the order of their runs', NULL);
    END IF;
    IF cardinality(moved) = 0 THEN
        RETURN moved;
    END IF;
    UPDATE {schema}.heads h SET seq = g.seq, decided = g.decided, status = g.status, at = g.at, hash = g.hash,
        changed = extract(epoch FROM clock_timestamp())
    FROM unnest(moved, new_seqs, new_decided, new_statuses, new_ats, new_hashes) AS g (
        run, seq, decided, status, at, hash
    ) WHERE h.run = g.run;
    INSERT INTO {schema}.events (run, seq, id, at, type, hash, body)
    SELECT g.run, a.seq, a.id, a.at, a.type, a.hash, a.body
    FROM unnest(all_seqs, all_ids, all_ats, all_types, all_hashes, event_bodies)
        WITH ORDINALITY AS a (seq, id, at, type, hash, body, place)
    JOIN unnest(moved, its_firsts, its_lasts) AS g (run, its_first, its_last)
        ON a.place BETWEEN g.its_first AND g.its_last;
    IF cardinality(effect_runs) > 0 THEN
        INSERT INTO {schema}.effects (run, id, state, opened, wanted, body)
        SELECT f.* FROM unnest(effect_runs, effect_ids, effect_states, effect_opened, effect_wanted, effect_bodies)
            AS f (run, id, state, opened, wanted, body) WHERE f.run = ANY (moved)
        ON CONFLICT (run, id) DO UPDATE
            SET state = excluded.state, opened = excluded.opened, wanted = excluded.wanted, body = excluded.body;
    END IF;
    IF has_fence THEN
        PERFORM {schema}.fence_tree(tree, convert_to(top, 'UTF8'), fence.verb = 'halt',
            convert_to(coalesce(fence.who, ''), 'UTF8'), convert_to(coalesce(fence.reason, ''), 'UTF8'), fence.at);
    END IF;
    PERFORM pg_notify(a_channel, a_note);
    RETURN moved;
END
$$;

-- A role begins runs by `create_run`, whose arguments this holds against the bytes of the event. A front begins any run; a
-- worker only sub-runs, for the owner of the run above.
CREATE OR REPLACE FUNCTION {schema}.check_creation() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made record;
    said record;
    e record;
BEGIN
    IF has_table_privilege(session_user, '{schema}.events', 'INSERT') THEN
        RETURN NEW;
    END IF;
    PERFORM {schema}.check_isolation();
    SELECT r.id, r.agent, r.owner, r.parent, r.root, p.owner AS above, h.seq, h.decided, h.epoch, h.status, h.hash
    INTO STRICT made FROM {schema}.runs r JOIN {schema}.heads h ON h.run = r.key
    LEFT JOIN {schema}.runs p ON p.id = r.parent WHERE r.key = NEW.run;
    IF NOT {schema}.has_role('front') THEN
        IF made.parent IS NULL OR NOT {schema}.has_role('worker') THEN
            PERFORM {schema}.refuse('begin a run', 'front');
        ELSIF made.above IS DISTINCT FROM made.owner THEN
            PERFORM {schema}.refuse('begin a sub-run for somebody else', 'front');
        END IF;
    END IF;
    e := {schema}.read_event(NEW.body);
    SELECT max(f.value #>> '{}') FILTER (WHERE f.key = 'run') AS id,
        max(f.value #>> '{}') FILTER (WHERE f.key = 'agent') AS agent,
        max(f.value #>> '{}') FILTER (WHERE f.key = 'parent') AS parent,
        max(f.value #>> '{}') FILTER (WHERE f.key = 'root') AS root,
        coalesce(max(f.value #>> '{}') FILTER (WHERE f.key = 'owner'), '') AS owner
    INTO said FROM json_each({schema}.readable(NEW.body)::json) f
    WHERE f.key IN ('run', 'agent', 'parent', 'root', 'owner');
    IF e.type <> 'run.created' OR NEW.type <> 'run.created' OR e.at <> NEW.at OR convert_to(e.id, 'UTF8') <> NEW.id
        OR (made.seq, made.decided, made.epoch, made.status, made.hash) IS DISTINCT FROM (1, 1, 0, 'queued', NEW.hash)
        OR (said.id, said.agent, said.parent, said.root) IS DISTINCT FROM (made.id, made.agent, made.parent, made.root)
        OR (convert_to(said.owner, 'UTF8') <> made.owner AND position(decode('00', 'hex') IN made.owner) = 0)
        OR NEW.hash <> sha256(sha256(convert_to('checkrein run ' || made.id, 'UTF8')) || int8send(1) || NEW.body)
    THEN
        PERFORM {schema}.refuse('begin a run otherwise than its event says', NULL);
    END IF;
    RETURN NEW;
END
$$;

DO $do$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_trigger
        WHERE tgrelid = '{schema}.events'::regclass AND tgname = 'check_creation' AND NOT tgisinternal
    ) THEN
        CREATE TRIGGER check_creation BEFORE INSERT ON {schema}.events FOR EACH ROW WHEN (NEW.seq = 1)
        EXECUTE FUNCTION {schema}.check_creation();
    END IF;
END
$do$;

-- A role claims a run under the next epoch and no other: after the highest there is none.
CREATE OR REPLACE FUNCTION {schema}.check_claim() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, '{schema}.heads', 'UPDATE') THEN
        PERFORM {schema}.refuse('claim a run under another epoch than the next', NULL);
    END IF;
    RETURN NEW;
END
$$;

DO $do$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_trigger
        WHERE tgrelid = '{schema}.heads'::regclass AND tgname = 'check_claim' AND NOT tgisinternal
    ) THEN
        CREATE TRIGGER check_claim BEFORE UPDATE OF epoch ON {schema}.heads FOR EACH ROW
        WHEN (NEW.epoch - OLD.epoch <> 1) EXECUTE FUNCTION {schema}.check_claim();
    END IF;
END
$do$;

CREATE OR REPLACE FUNCTION {schema}.renew_as_role(
    a_process text, a_runs text[], seconds double precision, told_now double precision, steady_now double precision
) RETURNS SETOF text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE {schema}.leases l SET until = steady_now + seconds,
        deadline = coalesce(told_now, extract(epoch FROM clock_timestamp())) + seconds
    FROM {schema}.runs r WHERE r.key = l.run AND l.process = a_process AND l.deadline <> 0
    AND (a_runs IS NULL OR r.id = ANY (a_runs))
    RETURNING r.id
$$;

CREATE OR REPLACE FUNCTION {schema}.release_as_role(a_run text, an_epoch bigint, a_process text)
RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM {schema}.leases l USING {schema}.runs r, {schema}.heads h
    WHERE r.id = a_run AND h.run = r.key AND l.run = r.key AND h.epoch = an_epoch AND l.process = a_process
    RETURNING l.run
$$;

-- Whoever decides about a run believes a snapshot, and nothing here can tell whether it is right. So a worker, which runs the
-- code of authors, keeps none.
CREATE OR REPLACE FUNCTION {schema}.save_snapshot_as_role(a_run text, a_seq bigint, a_version text, a_state bytea)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF {schema}.has_role('front') OR {schema}.has_role('operator') THEN
        INSERT INTO {schema}.snapshots AS s (run, seq, version, state)
        SELECT e.run, e.seq, a_version, a_state FROM {schema}.runs r
        JOIN {schema}.events e ON e.run = r.key AND e.seq = a_seq WHERE r.id = a_run
        ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, version = excluded.version, state = excluded.state
        WHERE excluded.seq > s.seq OR excluded.version <> s.version;
    END IF;
END
$$;

-- What each role may do. Nothing is left of what it could do before.
REVOKE ALL ON SCHEMA {schema} FROM {roles};
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {roles};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM {roles};
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM {roles};
GRANT USAGE ON SCHEMA {schema} TO {roles};
GRANT SELECT ON {schema}.version, {schema}.runs, {schema}.heads, {schema}.events, {schema}.leases, {schema}.fences,
    {schema}.effects, {schema}.chunks, {schema}.files, {schema}.snapshots, {schema}.workers,
    {schema}.operations TO {roles};
-- Whoever serves people says who they are. A worker, which runs the code of authors, does not even see who may come in.
-- What was withheld, and what was signed, is for those who make bundles: a worker writes the one and reads neither.
GRANT SELECT ON {schema}.withheld, {schema}.signed TO {front}, {operator};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.tokens, {schema}.sessions, {schema}.codes, {schema}.deliveries,
    {schema}.delivery_times TO {front};

-- By name, whatever their arguments: those of the schema's own functions that write become functions of their owner.
DO $do$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT p.oid::regprocedure AS signature, w.roles FROM (VALUES
            ('append_as_role', '{roles}'),
            ('create_run', '{worker}, {front}'),
            ('renew_as_role', '{worker}'),
            ('release', '{roles}'),
            ('release_as_role', '{roles}'),
            ('save_snapshot_as_role', '{roles}'),
            ('claim', '{roles}'),
            ('claim_free', '{worker}'),
            ('write_chunks', '{worker}'),
            ('write_file', '{worker}'),
            ('write_withheld', '{worker}'),
            ('add_signed', '{front}, {operator}'),
            ('delete_run', '{operator}'),
            ('join_chunks', '{roles}'),
            ('enlist', '{worker}'),
            ('discharge', '{worker}'),
            ('bury', '{operator}'),
            -- A halt of an earlier version leaves no record, but halts; a reset that leaves none is not for anybody.
            ('put_fence', '{operator}'),
            ('latch_halt', '{operator}'),
            ('lift_halt', '{operator}')
        ) AS w (name, roles) JOIN pg_catalog.pg_proc p ON p.proname = w.name
        WHERE p.pronamespace = '{schema}'::regnamespace
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = pg_catalog, pg_temp', one.signature);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one.signature);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', one.signature, one.roles);
    END LOOP;
END
$do$;
