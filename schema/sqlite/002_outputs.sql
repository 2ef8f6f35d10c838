-- The messages that a handler returned, for publishing them again when the event is delivered again. All messages of
-- one event are in one value, in the encoding of the library's outputs.go, which keeps every byte.
CREATE TABLE IF NOT EXISTS {{outputs}} (
    key      BLOB NOT NULL PRIMARY KEY,
    messages BLOB NOT NULL
);
