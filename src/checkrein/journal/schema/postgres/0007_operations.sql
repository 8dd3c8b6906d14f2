-- What operators did: halts and resets, chained like the events of a run. `body` says who, why, where and when; what the
-- store itself knows is added here and nowhere else.
CREATE TABLE {schema}.operations (
    seq         bigint PRIMARY KEY,
    id          bytea NOT NULL UNIQUE,
    was_latched boolean NOT NULL,
    hash        bytea NOT NULL,
    body        bytea NOT NULL
);

-- Whether a request says of itself what it is asked to do. Text with a NUL cannot be compared here.
CREATE FUNCTION {schema}.request_says(said json, field text, value bytea) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT position('\x00'::bytea IN value) > 0 OR convert_to(said ->> field, 'UTF8') = value
$$;

-- Records a request, after which nobody else does until this is committed. `was_latched` is what the store found.
CREATE FUNCTION {schema}.record_operation(
    an_id bytea, a_body bytea, a_type text, a_scope text, a_name bytea, who bytea, why bytea, was_latched boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    -- No text holds a NUL. Not after a backslash that is itself escaped: then these are six characters of somebody's text.
    said json := regexp_replace(
        convert_from(a_body, 'UTF8'), E'(?<!\\\\)((?:\\\\\\\\)*)\\\\u0000', E'\\1?', 'g')::json;
    added bytea;
    whole bytea;
    last record;
BEGIN
    IF (
        {schema}.request_says(said, 'type', convert_to(a_type, 'UTF8'))
        AND {schema}.request_says(said, 'scope', convert_to(a_scope, 'UTF8'))
        AND {schema}.request_says(said, 'name', a_name) AND {schema}.request_says(said, 'id', an_id)
        AND {schema}.request_says(said, 'by', who) AND {schema}.request_says(said, 'reason', why)
    ) IS NOT TRUE THEN
        RAISE EXCEPTION 'a request that says something else than what it asks for' USING ERRCODE = 'data_exception';
    END IF;
    SELECT o.seq, o.hash INTO last FROM {schema}.operations o ORDER BY o.seq DESC LIMIT 1;
    IF NOT FOUND THEN
        SELECT 0::bigint AS seq, sha256('checkrein operations'::bytea) AS hash INTO last;
    END IF;
    added := convert_to(format(
        ',"store_at":%s,"was_latched":%s,"store_user":%s}', extract(epoch FROM clock_timestamp())::double precision,
        was_latched::text, to_json(session_user::text)), 'UTF8');
    whole := substring(a_body FROM 1 FOR octet_length(a_body) - 1) || added;
    INSERT INTO {schema}.operations (seq, id, was_latched, hash, body)
    VALUES (last.seq + 1, an_id, was_latched, sha256(last.hash || int8send(last.seq + 1) || whole), whole);
END
$$;

-- Puts up the fence of a halt; NULL: there is no such run. Whoever asks again under the same id gets the same answer.
CREATE FUNCTION {schema}.latch_halt(
    an_id bytea, a_body bytea, a_scope text, a_name bytea, who bytea, why bytea, an_at double precision,
    must_exist boolean, a_channel text, a_note text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    was_latched boolean;
BEGIN
    LOCK TABLE {schema}.gate IN EXCLUSIVE MODE;
    SELECT o.was_latched INTO was_latched FROM {schema}.operations o WHERE o.id = an_id;
    IF FOUND THEN
        RETURN was_latched;
    END IF;
    IF must_exist AND a_scope = 'run' AND NOT EXISTS (
        SELECT 1 FROM {schema}.runs r WHERE convert_to(r.id, 'UTF8') = a_name
    ) THEN
        RETURN NULL;
    END IF;
    was_latched := EXISTS (
        SELECT 1 FROM {schema}.fences f WHERE f.scope = a_scope AND f.name = a_name AND f.source = a_name AND f.halt
    );
    PERFORM {schema}.put_fence(a_scope, a_name, true, who, why, an_at);
    PERFORM {schema}.record_operation(an_id, a_body, 'halt.latched', a_scope, a_name, who, why, was_latched);
    PERFORM pg_notify(a_channel, a_note);
    RETURN was_latched;
END
$$;

-- Takes the fence of a halt down, and those of the runs that it ended.
CREATE FUNCTION {schema}.lift_halt(
    an_id bytea, a_body bytea, a_scope text, a_name bytea, who bytea, why bytea, runs bytea[], a_channel text, a_note text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    was_latched boolean;
    run bytea;
BEGIN
    LOCK TABLE {schema}.gate IN EXCLUSIVE MODE;
    SELECT o.was_latched INTO was_latched FROM {schema}.operations o WHERE o.id = an_id;
    IF FOUND THEN
        RETURN was_latched;
    END IF;
    was_latched := {schema}.lift_fence(a_scope, a_name);
    FOREACH run IN ARRAY runs LOOP
        PERFORM {schema}.lift_fence('run', run);
    END LOOP;
    PERFORM {schema}.record_operation(an_id, a_body, 'halt.lifted', a_scope, a_name, who, why, was_latched);
    PERFORM pg_notify(a_channel, a_note);
    RETURN was_latched;
END
$$;

UPDATE {schema}.version SET version = version + 1;
