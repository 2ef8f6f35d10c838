-- One row for each event that a consumer received. The key is computed by the library (see inbox.KeyOf) and is all that
-- deduplication looks at; the text columns are for people to read, printable and cut to 255 bytes. Times are UTC.
CREATE TABLE IF NOT EXISTS {{ledger}} (
    key          BLOB      NOT NULL PRIMARY KEY,
    received_at  TIMESTAMP NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    processed_at TIMESTAMP,
    consumer     TEXT      NOT NULL,
    source       TEXT      NOT NULL,
    event_id     TEXT      NOT NULL,
    event_type   TEXT      NOT NULL
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS {{schema}}.{{unprocessed}} ON {{ledger_name}} (received_at) WHERE processed_at IS NULL;
