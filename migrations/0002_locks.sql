-- A transaction that writes a row here keeps others that write the same one
-- waiting until it ends. SQLite has one writer at a time anyway.

CREATE TABLE locks (
    name TEXT PRIMARY KEY
);
