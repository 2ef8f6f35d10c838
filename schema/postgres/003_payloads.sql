-- One row for each stored message that is not finished, and for each dead letter. Without an owner a row may be claimed
-- from due_at on; with one, due_at is the end of its lease, of which lease
-- is the owner's number. A row without due_at is dead, or waits behind another row of its
-- lane. queue is a hash of consumer and topic, lane one of queue and ordering key; message is in the encoding of the
-- library's stored.go.
CREATE TABLE IF NOT EXISTS {{payloads}} (
    key        uuid    PRIMARY KEY,
    seq        bigint  NOT NULL GENERATED ALWAYS AS IDENTITY,
    queue      uuid    NOT NULL,
    lane       bigint,
    due_at     timestamptz,
    owner      uuid,
    lease      bigint,
    attempts   integer NOT NULL,
    dead_at    timestamptz,
    last_error text,
    message    bytea   NOT NULL
);

CREATE INDEX IF NOT EXISTS {{due}} ON {{payloads}} (queue, due_at, seq) WHERE due_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {{lane}} ON {{payloads}} (lane, seq) WHERE lane IS NOT NULL AND dead_at IS NULL;

CREATE UNIQUE INDEX IF NOT EXISTS {{active}} ON {{payloads}} (lane) WHERE lane IS NOT NULL AND due_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {{dead}} ON {{payloads}} (dead_at, seq) WHERE dead_at IS NOT NULL;

-- How often an event failed in same-transaction mode, where WithMaxAttempts counts. Rows go with success, with death, or
-- when a later failure of any event finds that theirs was handled since.
CREATE TABLE IF NOT EXISTS {{failures}} (
    key       uuid        PRIMARY KEY,
    attempts  integer     NOT NULL,
    failed_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX IF NOT EXISTS {{failed}} ON {{failures}} (failed_at);
