-- The `record` column is the only source of truth. The columns for searches are generated from it, and runs and calls
-- are views, so there is no second copy to tamper with. `row` is the order in which records became durable, over all
-- chains.
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

CREATE TABLE grants (
  id         TEXT PRIMARY KEY,
  principal  TEXT NOT NULL,
  source     TEXT NOT NULL,
  definition TEXT NOT NULL,
  tool       TEXT NOT NULL,
  policies   TEXT NOT NULL,
  scope      TEXT NOT NULL,
  arguments  TEXT,
  session    TEXT,
  nonce      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  uses_left  INTEGER
) STRICT;

CREATE TABLE cursors (
  sink  TEXT NOT NULL,
  chain TEXT NOT NULL,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (sink, chain)
) STRICT;
