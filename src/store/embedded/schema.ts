// The tables of gateway.db, as the steps that lead to them. A step that was released is never changed: another one
// follows.
import type { DatabaseSync } from 'node:sqlite'

/** The step at index n leads from version n to n + 1. */
export const STEPS: readonly string[] = [`
  CREATE TABLE entries (
    seq INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    key TEXT,
    reference TEXT NOT NULL,
    nanos INTEGER NOT NULL,
    shortfall INTEGER,
    model TEXT,
    channel TEXT,
    usage_source TEXT,
    input INTEGER,
    cache_read INTEGER,
    cache_write_5m INTEGER,
    cache_write_1h INTEGER,
    output INTEGER,
    extras TEXT,
    UNIQUE (reference, kind)
  ) STRICT;
  CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
  CREATE TRIGGER entries_remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;

  -- What the entries add up to, kept with each transaction, so that a start need not read them all.
  CREATE TABLE balances (account TEXT PRIMARY KEY, nanos INTEGER NOT NULL) STRICT, WITHOUT ROWID;
  CREATE TABLE key_usage (key TEXT PRIMARY KEY, nanos INTEGER NOT NULL) STRICT, WITHOUT ROWID;

  -- What a running request would be charged if it died now.
  CREATE TABLE progress (
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    reference TEXT PRIMARY KEY,
    nanos INTEGER NOT NULL,
    shortfall INTEGER,
    model TEXT NOT NULL,
    channel TEXT,
    usage_source TEXT NOT NULL,
    input INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write_5m INTEGER NOT NULL,
    cache_write_1h INTEGER NOT NULL,
    output INTEGER NOT NULL,
    extras TEXT
  ) STRICT, WITHOUT ROWID;

  -- The last minute of the rate limits, from a clean stop.
  CREATE TABLE windows (name TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL) STRICT;
  -- Of the process that has the folder, or had it last.
  CREATE TABLE life (owner TEXT NOT NULL, alive_until INTEGER NOT NULL) STRICT;
  INSERT INTO life VALUES ('', 0);
`, `
  -- Accounts and keys that were made through the admin API, as JSON, and who changed what.
  CREATE TABLE records (kind TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (kind, id)) STRICT, WITHOUT ROWID;
  CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL) STRICT;
  CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
  CREATE TRIGGER audit_remains BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
`, `
  ALTER TABLE entries ADD COLUMN price_version TEXT;
  ALTER TABLE entries ADD COLUMN day TEXT;
  ALTER TABLE progress ADD COLUMN price_version TEXT;
  ALTER TABLE progress ADD COLUMN day TEXT;
  -- What each key has spent on a day, such as 2026-11-21, and in a month, such as 2026-11; those that are over are deleted.
  CREATE TABLE key_periods (period TEXT NOT NULL, key TEXT NOT NULL, nanos INTEGER NOT NULL, PRIMARY KEY (period, key)) STRICT, WITHOUT ROWID;
`, `
  -- What upstreams work on after the request was answered. While it is open, nanos is a hold of its request.
  CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    request_id TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    nanos INTEGER NOT NULL,
    day TEXT,
    created INTEGER NOT NULL,
    is_open INTEGER NOT NULL,
    text TEXT NOT NULL
  ) STRICT;
  CREATE INDEX tasks_of_account ON tasks (account, created, id);
  CREATE INDEX tasks_by_age ON tasks (is_open, created);
  -- What requests were answered that named themselves, for those who send them again.
  CREATE TABLE answers (
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    hash TEXT NOT NULL,
    request_id TEXT NOT NULL,
    created INTEGER NOT NULL,
    text TEXT,
    PRIMARY KEY (account, name)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX answers_by_age ON answers (created);
`, `
  -- What rate limits have counted: parts is a JSON list of first, last and count, and ahead, how many more may have come in the second after at.
  CREATE TABLE noted_windows (name TEXT PRIMARY KEY, at INTEGER NOT NULL, parts TEXT NOT NULL, ahead INTEGER NOT NULL) STRICT, WITHOUT ROWID;
  INSERT INTO noted_windows SELECT name, max(last), '[' || group_concat(first || ',' || last || ',' || count) || ']', 0 FROM (SELECT * FROM windows ORDER BY rowid) GROUP BY name;
  DROP TABLE windows;
`, `
  -- Of a refund or a debit. No progress has one: its columns are those of the entry that it may become.
  ALTER TABLE entries ADD COLUMN reason TEXT;
  ALTER TABLE progress ADD COLUMN reason TEXT;
`]

export const FOREIGN = 'it belongs to another program'

/** @throws {Error} the file is empty, where a ledger was */
export function refuseEmpty (db: DatabaseSync): void {
  if (db.prepare('SELECT 1 FROM sqlite_schema').get() === undefined) {
    throw new Error(
      'there is nothing in it, and there was a ledger. Put it back together with its write-ahead log ' +
      '(gateway.db-wal); or delete it, and the next start says how to go on without it'
    )
  }
}

/** Applies the missing steps, all or none. @throws {Error} the file belongs to another program or a newer release */
export function migrate (db: DatabaseSync, steps = STEPS): void {
  db.exec('BEGIN IMMEDIATE')
  try {
    const version = Number(db.prepare('PRAGMA user_version').get()!['user_version'])
    if (version > steps.length) {
      throw new Error(
        `it was written by a newer gateway (its tables are of version ${version}, this gateway knows ` +
        `${steps.length}): start that one`
      )
    }
    if (version === 0 && db.prepare('SELECT 1 FROM sqlite_schema').get() !== undefined) throw new Error(FOREIGN)
    for (const step of steps.slice(version)) { db.exec(step) }
    db.exec(`PRAGMA user_version = ${steps.length}; COMMIT`)
  } catch (thrown) {
    if (db.isTransaction) db.exec('ROLLBACK')
    throw thrown
  }
}
