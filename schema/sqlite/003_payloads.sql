-- One row for each stored message that is not finished, and for each dead letter. Without an owner a row may be claimed
-- from due_at on; with one, due_at is the end of its lease, of which lease
-- is the owner's number. A row without due_at is dead, or waits behind another row of its
-- lane. queue is a hash of consumer and topic, lane one of queue and ordering key; message is in the encoding of the
-- library's stored.go. Times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS {{payloads}} (
    seq        INTEGER PRIMARY KEY,
    key        BLOB    NOT NULL UNIQUE,
    queue      BLOB    NOT NULL,
    lane       INTEGER,
    due_at     INTEGER,
    owner      BLOB,
    lease      INTEGER,
    attempts   INTEGER NOT NULL,
    dead_at    INTEGER,
    last_error TEXT,
    message    BLOB    NOT NULL
);

CREATE INDEX IF NOT EXISTS {{schema}}.{{due}} ON {{payloads_name}} (queue, due_at, seq) WHERE due_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {{schema}}.{{lane}} ON {{payloads_name}} (lane, seq) WHERE lane IS NOT NULL AND dead_at IS NULL;

CREATE UNIQUE INDEX IF NOT EXISTS {{schema}}.{{active}} ON {{payloads_name}} (lane) WHERE lane IS NOT NULL AND due_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {{schema}}.{{dead}} ON {{payloads_name}} (dead_at, seq) WHERE dead_at IS NOT NULL;

-- How often an event failed in same-transaction mode, where WithMaxAttempts counts. Rows go with success, with death, or
-- when a later failure of any event finds that theirs was handled since.
CREATE TABLE IF NOT EXISTS {{failures}} (
    key       BLOB    NOT NULL PRIMARY KEY,
    attempts  INTEGER NOT NULL,
    failed_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS {{schema}}.{{failed}} ON {{failures_name}} (failed_at);
