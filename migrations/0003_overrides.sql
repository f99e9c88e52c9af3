-- Emergency limits: those that stand and those that stood.
CREATE TABLE overrides (
    id       TEXT PRIMARY KEY,
    service  TEXT NOT NULL,
    starts   BIGINT NOT NULL,
    ends     BIGINT NOT NULL,
    ended_by TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX overrides_ends ON overrides (ends);
CREATE INDEX overrides_starts ON overrides (starts, id);
