-- Sign-ins of people. id and hash are SHA-256 in hex of what the browser or the
-- program holds; sealed is readable with the browser's part only.
CREATE TABLE sessions (
    id       TEXT PRIMARY KEY,
    name     TEXT NOT NULL,
    via      TEXT NOT NULL,
    teams    TEXT NOT NULL, -- JSON
    sealed   BYTEA,
    created  BIGINT NOT NULL,
    checked  BIGINT NOT NULL,
    seen     BIGINT NOT NULL,
    ends     BIGINT NOT NULL
);
CREATE INDEX sessions_ends ON sessions (ends);

CREATE TABLE api_tokens (
    id       TEXT PRIMARY KEY,
    name     TEXT NOT NULL,
    hash     TEXT NOT NULL UNIQUE,
    role     TEXT NOT NULL,
    services TEXT NOT NULL, -- JSON
    actor    TEXT NOT NULL,
    created  BIGINT NOT NULL,
    ends     BIGINT NOT NULL,
    used     BIGINT NOT NULL,
    revoked  BIGINT NOT NULL
);
CREATE INDEX api_tokens_created ON api_tokens (created, id);

CREATE INDEX audit_actor ON audit (actor, at);

-- The log only grows. Engines say this differently: a line that begins with
-- the name of an engine is that engine's.
--sqlite CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
--sqlite CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
--postgres CREATE FUNCTION audit_grows() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''the audit log only grows''; END';
--postgres CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_grows();
