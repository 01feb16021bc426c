-- The state as formats 1 and 2 created it: grants did not say which questions they answered.
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
