-- How many runs each agent has in each status, and which of them want a driver, without a look at the runs themselves.
DROP INDEX runs_by_agent;
CREATE INDEX runs_by_agent ON runs (agent, status);

-- The runs of which something was ever asked: a verb was accepted. An event's body begins with its type.
CREATE TABLE asked (
    run INTEGER PRIMARY KEY
);
INSERT OR IGNORE INTO asked (run) SELECT run FROM events WHERE substr(body, 1, 23) = CAST('{"type":"verb.accepted"' AS BLOB);
