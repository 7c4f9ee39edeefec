// The tables of gateway.db, as the steps that lead to them. A step that was released is never changed: another one
// follows.
import type { DatabaseSync } from 'node:sqlite'

/** What an entry adds to its hour: tokens and items count once, in the settlement. */
const ADDED_BY_ENTRIES = `
  SELECT time - time % 3600000 AS start, account, coalesce(key, '') AS key, coalesce(model, '') AS model,
    coalesce(channel, '') AS channel, kind = 'settle' AS requests, iif(kind = 'settle', input, 0) AS input,
    iif(kind = 'settle', cache_read, 0) AS cache_read, iif(kind = 'settle', cache_write_5m, 0) AS cache_write_5m,
    iif(kind = 'settle', cache_write_1h, 0) AS cache_write_1h, iif(kind = 'settle', output, 0) AS output,
    iif(kind = 'settle', coalesce(extras, '{}'), '{}') AS extras, nanos, coalesce(shortfall, 0) AS shortfall
  FROM entries WHERE kind IN ('settle', 'adjust', 'shortfall')
`
/** Sums for a rollup, in the order of its columns. */
const ADDED_UP = `sum(requests), 0, coalesce(sum(input), 0), coalesce(sum(cache_read), 0),
    coalesce(sum(cache_write_5m), 0), coalesce(sum(cache_write_1h), 0), coalesce(sum(output), 0),
    coalesce(sum(extras ->> 'web_search'), 0), coalesce(sum(extras ->> 'web_fetch'), 0),
    coalesce(sum(extras ->> 'image'), 0), coalesce(sum(extras ->> 'video_second'), 0), -sum(nanos), sum(shortfall)`
/** The first hour of the last 7 days. */
const FIRST_HOUR = '(SELECT max(time) - max(time) % 3600000 - 604800000 FROM entries)'
const rollups = (name: string): string => `
  CREATE TABLE ${name} (
    start INTEGER NOT NULL,
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    model TEXT NOT NULL,
    channel TEXT NOT NULL,
    requests INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    input INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write_5m INTEGER NOT NULL,
    cache_write_1h INTEGER NOT NULL,
    output INTEGER NOT NULL,
    web_search INTEGER NOT NULL,
    web_fetch INTEGER NOT NULL,
    image INTEGER NOT NULL,
    video_second INTEGER NOT NULL,
    nanos INTEGER NOT NULL,
    shortfall INTEGER NOT NULL,
    PRIMARY KEY (start, account, key, model, channel)
  ) STRICT, WITHOUT ROWID;
`
const SUMS = ['requests', 'errors', 'input', 'cache_read', 'cache_write_5m', 'cache_write_1h', 'output', 'web_search',
  'web_fetch', 'image', 'video_second', 'nanos', 'shortfall']

/** The status of a task, where its text tells one. As an index has it: never changed. */
export const TASK_STATUS = "iif(json_valid(text), text ->> 'status', NULL)"

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
`, `
  -- What entries that keys have caused add up to: hours of the last 7 days, and before them days in UTC. '' stands for none.
  ${rollups('usage_hours')}
  ${rollups('usage_days')}
  INSERT INTO usage_hours SELECT start, account, key, model, channel, ${ADDED_UP}
    FROM (${ADDED_BY_ENTRIES}) WHERE start >= ${FIRST_HOUR} GROUP BY 1, 2, 3, 4, 5;
  INSERT INTO usage_days SELECT start - start % 86400000, account, key, model, channel, ${ADDED_UP}
    FROM (${ADDED_BY_ENTRIES}) WHERE start < ${FIRST_HOUR} GROUP BY 1, 2, 3, 4, 5;
  -- Bookings by the reference that their accounts know: the one that is stored has kind and account before it.
  CREATE INDEX bookings_by_reference ON entries (
    iif(instr(reference, kind || ':' || account || ':') = 1, substr(reference, length(kind) + length(account) + 3), reference)
  ) WHERE kind IN ('credit', 'refund', 'debit');
`, `
  -- Numbers of entries by account, key and model, as JSON lists of up to a thousand, the first of which is the row's.
  CREATE TABLE entry_index (of TEXT NOT NULL, member TEXT NOT NULL, first INTEGER NOT NULL, seqs TEXT NOT NULL, PRIMARY KEY (of, member, first)) STRICT, WITHOUT ROWID;
  -- Entries up to it are in the index.
  CREATE TABLE indexed (seq INTEGER NOT NULL) STRICT;
  INSERT INTO entry_index SELECT 'account', account, min(seq), json_group_array(seq ORDER BY seq) FROM entries
    GROUP BY account, seq / 1000;
  INSERT INTO entry_index SELECT 'key', key, min(seq), json_group_array(seq ORDER BY seq) FROM entries
    WHERE key IS NOT NULL GROUP BY key, seq / 1000;
  INSERT INTO entry_index SELECT 'model', model, min(seq), json_group_array(seq ORDER BY seq) FROM entries
    WHERE model IS NOT NULL GROUP BY model, seq / 1000;
  INSERT INTO indexed SELECT coalesce(max(seq), -1) FROM entries;
  -- Of a gateway between two releases.
  DROP INDEX IF EXISTS entries_of_account;
  DROP INDEX IF EXISTS entries_of_key;
  DROP INDEX IF EXISTS entries_of_model;
`, `
  -- Hours that are over are in usage_days too, and days that are over in usage_months: up to the row that this says, in
  -- the order of the primary keys, that row not among them.
  ${rollups('usage_months')}
  CREATE TABLE carried (
    of TEXT PRIMARY KEY,
    start INTEGER NOT NULL,
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    model TEXT NOT NULL,
    channel TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  INSERT INTO carried SELECT 'hours', coalesce(max(start), 0), '', '', '', '' FROM usage_hours;
  INSERT INTO carried SELECT 'days', start - start % 86400000, '', '', '', '' FROM carried WHERE of = 'hours';
  INSERT INTO usage_days SELECT start - start % 86400000, account, key, model, channel, ${SUMS.join()} FROM usage_hours
    WHERE start < (SELECT start FROM carried WHERE of = 'hours')
    ON CONFLICT DO UPDATE SET ${SUMS.map((name) => `${name} = ${name} + excluded.${name}`).join()};
  INSERT INTO usage_months SELECT unixepoch(start / 1000, 'unixepoch', 'start of month') * 1000, account, key, model,
      channel, ${SUMS.map((name) => `sum(${name})`).join()}
    FROM usage_days WHERE start < (SELECT start FROM carried WHERE of = 'days') GROUP BY 1, 2, 3, 4, 5;
`, `
  CREATE INDEX tasks_by_creation ON tasks (created, id);
  CREATE INDEX tasks_by_status ON tasks (${TASK_STATUS}, created, id);
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

/** @returns the version of its tables. @throws {Error} a newer release wrote it: the words behind the file's name */
export function refuseNewer (db: DatabaseSync, steps = STEPS): number {
  const version = Number(db.prepare('PRAGMA user_version').get()!['user_version'])
  if (version <= steps.length) return version
  throw new Error(
    `it was written by a newer gateway (its tables are of version ${version}, this gateway knows ` +
    `${steps.length}): start that one`
  )
}

/** Applies the missing steps, all or none. @throws {Error} the file belongs to another program or a newer release */
export function migrate (db: DatabaseSync, steps = STEPS): void {
  db.exec('BEGIN IMMEDIATE')
  try {
    const version = refuseNewer(db, steps)
    if (version === 0 && db.prepare('SELECT 1 FROM sqlite_schema').get() !== undefined) throw new Error(FOREIGN)
    for (const step of steps.slice(version)) { db.exec(step) }
    db.exec(`PRAGMA user_version = ${steps.length}; COMMIT`)
  } catch (thrown) {
    if (db.isTransaction) db.exec('ROLLBACK')
    throw thrown
  }
}
