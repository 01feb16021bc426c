-- What searches need of each record. All of it is derived from the records: the text of a record is read from where it
-- is stored, and this file can be deleted at any time. `row` is the order in which records were found, which is that of
-- their times.
CREATE TABLE chains (
  id       INTEGER PRIMARY KEY,
  chain    TEXT NOT NULL UNIQUE,
  segment  INTEGER NOT NULL,  -- the place up to which its records are here
  offset   INTEGER NOT NULL,
  complete INTEGER NOT NULL,  -- 1 if it has its end, and all of it is here
  removed  INTEGER NOT NULL DEFAULT 0  -- the number of its first records that were removed because of their age
) STRICT;
CREATE TABLE legacy (row INTEGER NOT NULL) STRICT;  -- the last record of format 1 that is here
INSERT INTO legacy VALUES (0);

CREATE TABLE events (
  row       INTEGER PRIMARY KEY,
  chain     INTEGER NOT NULL REFERENCES chains,
  seq       INTEGER NOT NULL,
  segment   INTEGER NOT NULL,  -- the place of the records that it was written with; segment 0 stands for format 1
  offset    INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  kind      TEXT NOT NULL,
  run       TEXT,
  call      TEXT,
  principal TEXT,              -- of a run.started
  profile   TEXT,
  error     TEXT,              -- of a run.error
  outcome   TEXT,              -- of a tool.completed
  UNIQUE (chain, seq)
) STRICT;
-- Nearly every record is of one of the two omitted kinds: an index of them would speed up no search.
CREATE INDEX events_kind ON events (kind) WHERE kind NOT IN ('call.intent', 'tool.completed');
CREATE INDEX events_run ON events (run) WHERE run IS NOT NULL;
CREATE INDEX events_call ON events (call) WHERE call IS NOT NULL;

CREATE VIEW runs AS
SELECT run, chains.chain AS chain, min(row) AS first, min(at) AS started,
  max(CASE WHEN kind IN ('run.completed', 'run.error') THEN at END) AS ended,
  max(kind = 'run.completed') AS completed, max(kind = 'run.error') AS failed,
  max(error) AS error, max(principal) AS principal, max(profile) AS profile, count(DISTINCT call) AS calls
FROM events JOIN chains ON chains.id = events.chain WHERE run IS NOT NULL GROUP BY run, events.chain;

CREATE VIEW calls AS
SELECT call, chains.chain AS chain, max(run) AS run, min(row) AS first, min(at) AS started,
  max(CASE WHEN kind IN ('tool.completed', 'call.denied') THEN at END) AS ended,
  max(kind = 'call.intent') AS intended, max(kind = 'tool.completed') AS completed, max(kind = 'call.denied') AS denied,
  max(kind = 'tool.completed' AND outcome IS 'unknown') AS lost
FROM events JOIN chains ON chains.id = events.chain WHERE call IS NOT NULL GROUP BY call, events.chain;
