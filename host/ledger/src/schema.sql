-- State, which changes: the records are in segments.
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
  uses_left  INTEGER,
  -- A JSON array. A broker of an earlier version that still runs gives none, and such a grant covers nothing.
  reasons    TEXT NOT NULL DEFAULT '[]'
) STRICT;

CREATE TABLE IF NOT EXISTS cursors (
  sink  TEXT NOT NULL,
  chain TEXT NOT NULL,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (sink, chain)
) STRICT;
