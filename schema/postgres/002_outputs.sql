-- The messages that a handler returned, for publishing them again when the event is delivered again. All messages of
-- one event are in one value, in the encoding of the library's outputs.go, which keeps every byte.
CREATE TABLE IF NOT EXISTS {{outputs}} (
    key      uuid  PRIMARY KEY,
    messages bytea NOT NULL
);
