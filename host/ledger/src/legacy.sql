-- What format 1 created for records. This version reads them where they are found, and writes its own to segments. The
-- `record` column is the only source of truth; the other columns and the views are generated from it.
CREATE TABLE events (
  row    INTEGER PRIMARY KEY,
  chain  TEXT NOT NULL,
  seq    INTEGER NOT NULL,
  record TEXT NOT NULL,
  hash   BLOB NOT NULL,
  kind   TEXT GENERATED ALWAYS AS (json_extract(record, '$.kind')) VIRTUAL,
  run    TEXT GENERATED ALWAYS AS (json_extract(record, '$.run')) VIRTUAL,
  call   TEXT GENERATED ALWAYS AS (json_extract(record, '$.call')) VIRTUAL,
  UNIQUE (chain, seq)
) STRICT;
-- Nearly every record is of one of the two omitted kinds: indexing them would slow down every call and speed up no
-- search.
CREATE INDEX events_kind ON events (kind) WHERE kind NOT IN ('call.intent', 'tool.completed');
CREATE INDEX events_run ON events (run) WHERE run IS NOT NULL;
CREATE INDEX events_call ON events (call) WHERE call IS NOT NULL;

CREATE VIEW runs AS
SELECT run, chain, min(row) AS first, min(record ->> '$.at') AS started,
  max(CASE WHEN kind IN ('run.completed', 'run.error') THEN record ->> '$.at' END) AS ended,
  max(kind = 'run.completed') AS completed, max(kind = 'run.error') AS failed,
  max(CASE WHEN kind = 'run.error' THEN record ->> '$.body.error' END) AS error,
  max(CASE WHEN kind = 'run.started' THEN record ->> '$.body.principal' END) AS principal,
  max(CASE WHEN kind = 'run.started' THEN record ->> '$.body.profile' END) AS profile,
  count(DISTINCT call) AS calls
FROM events WHERE run IS NOT NULL GROUP BY run, chain;

CREATE VIEW calls AS
SELECT call, chain, max(run) AS run, min(row) AS first, min(record ->> '$.at') AS started,
  max(CASE WHEN kind IN ('tool.completed', 'call.denied') THEN record ->> '$.at' END) AS ended,
  max(kind = 'call.intent') AS intended, max(kind = 'tool.completed') AS completed, max(kind = 'call.denied') AS denied,
  max(kind = 'tool.completed' AND record ->> '$.body.outcome' IS 'unknown') AS lost
FROM events WHERE call IS NOT NULL GROUP BY call, chain;
