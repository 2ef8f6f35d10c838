-- One row for each event that a consumer received. The key is computed by the library (see inbox.KeyOf) and is all that
-- deduplication looks at; the text columns are for people to read, printable and cut to 255 bytes.
CREATE TABLE IF NOT EXISTS {{ledger}} (
    key          uuid        PRIMARY KEY,
    received_at  timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz,
    consumer     text        NOT NULL,
    source       text        NOT NULL,
    event_id     text        NOT NULL,
    event_type   text        NOT NULL
);

CREATE INDEX IF NOT EXISTS {{unprocessed}} ON {{ledger}} (received_at) WHERE processed_at IS NULL;
