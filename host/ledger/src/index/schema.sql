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

-- Texts that many records have. They are stored once, so that a row has small numbers.
CREATE TABLE kinds (id INTEGER PRIMARY KEY, kind TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO kinds VALUES (1, 'call.intent'), (2, 'tool.completed');
CREATE TABLE sessions (id INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE) STRICT;
-- Principals, profiles, sources and items. Where a name is referred to, 0 stands for none, and -1 for one that is not
-- listed here.
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

-- What a record says that searches ask for. Many records say the same.
CREATE TABLE facts (
  id        INTEGER PRIMARY KEY,
  principal INTEGER NOT NULL,
  profile   INTEGER NOT NULL,
  source    INTEGER NOT NULL,
  item      INTEGER NOT NULL,
  stage     TEXT NOT NULL,     -- how far the record brings its call
  outcome   TEXT NOT NULL,     -- of a tool.completed; otherwise empty
  UNIQUE (principal, profile, source, item, stage, outcome)
) STRICT;

CREATE TABLE events (
  row       INTEGER PRIMARY KEY,
  chain     INTEGER NOT NULL REFERENCES chains,
  seq       INTEGER NOT NULL,
  segment   INTEGER NOT NULL,  -- the place of the records that it was written with; segment 0 stands for format 1
  offset    INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  kind      INTEGER NOT NULL REFERENCES kinds,
  facts     INTEGER NOT NULL REFERENCES facts,
  run       INTEGER REFERENCES sessions,
  call      BLOB,              -- the 16 bytes of the identifier
  error     TEXT,              -- of a run.error
  UNIQUE (chain, seq)
) STRICT;
-- Nearly every record is of one of the two omitted kinds: an index of them would speed up no search.
CREATE INDEX events_kind ON events (kind) WHERE kind > 2;
CREATE INDEX events_run ON events (run) WHERE run IS NOT NULL;
CREATE INDEX events_call ON events (call) WHERE call IS NOT NULL;

-- The calls that agree in everything that searches ask for are one class. A search finds the classes first, of which
-- there are few, and then the newest calls of each.
CREATE TABLE classes (
  id        INTEGER PRIMARY KEY,
  principal INTEGER NOT NULL,
  profile   INTEGER NOT NULL,
  source    INTEGER NOT NULL,
  item      INTEGER NOT NULL,
  stage     TEXT NOT NULL,
  UNIQUE (principal, profile, source, item, stage)
) STRICT;
CREATE TABLE calls (call BLOB PRIMARY KEY, class INTEGER NOT NULL REFERENCES classes) STRICT, WITHOUT ROWID;
CREATE INDEX calls_class ON calls (class, call);

-- For the calls from `first` to the next block: a Bloom filter of the texts in their records, so that a search by text
-- reads only blocks that may have it. Names of the calls' classes are not in it.
CREATE TABLE blocks (
  first  BLOB PRIMARY KEY,
  calls  INTEGER NOT NULL,
  filter BLOB NOT NULL CHECK (length(filter) = 2048)
) STRICT;

-- Each 512 blocks that take no further calls are a group, for which the filters are here bit by bit: for each byte of a
-- filter the eight bits of all blocks, the bits of one place together. A search reads a few of them, and no filter.
CREATE TABLE block_groups (id INTEGER PRIMARY KEY, first BLOB NOT NULL UNIQUE, last BLOB NOT NULL) STRICT;
CREATE TABLE slices (
  block_group INTEGER NOT NULL REFERENCES block_groups,
  byte        INTEGER NOT NULL,
  bits        BLOB NOT NULL,
  PRIMARY KEY (block_group, byte)
) STRICT, WITHOUT ROWID;

CREATE VIEW run_rows AS
SELECT sessions.run AS run, chains.chain AS chain, min(row) AS first, min(at) AS started,
  max(CASE WHEN kinds.kind IN ('run.completed', 'run.error') THEN at END) AS ended,
  max(kinds.kind = 'run.completed') AS completed, max(kinds.kind = 'run.error') AS failed, max(error) AS error,
  max(CASE WHEN kinds.kind = 'run.started' THEN principals.name END) AS principal,
  max(CASE WHEN kinds.kind = 'run.started' THEN profiles.name END) AS profile, count(DISTINCT call) AS calls
FROM events JOIN kinds ON kinds.id = events.kind JOIN facts ON facts.id = events.facts
  JOIN sessions ON sessions.id = events.run JOIN chains ON chains.id = events.chain
  LEFT JOIN names AS principals ON principals.id = facts.principal
  LEFT JOIN names AS profiles ON profiles.id = facts.profile
GROUP BY events.run, events.chain;

CREATE VIEW call_rows AS
SELECT call, chains.chain AS chain, max(sessions.run) AS run, min(row) AS first, min(at) AS started,
  max(CASE WHEN kinds.kind IN ('tool.completed', 'call.denied', 'call.deferred') THEN at END) AS ended,
  max(kinds.kind = 'call.intent') AS intended, max(kinds.kind = 'tool.completed') AS completed,
  max(kinds.kind = 'call.denied') AS denied, max(kinds.kind = 'call.deferred') AS deferred, max(outcome = 'unknown') AS lost
FROM events JOIN kinds ON kinds.id = events.kind JOIN facts ON facts.id = events.facts
  JOIN chains ON chains.id = events.chain LEFT JOIN sessions ON sessions.id = events.run
WHERE call IS NOT NULL GROUP BY call, events.chain;
