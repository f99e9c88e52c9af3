-- All records. One text serves SQLite and PostgreSQL: times are BIGINT Unix
-- microseconds (0: no time), ids come from rlc, BYTEA is a type name that
-- SQLite gives no affinity of its own: bytes stay bytes.

CREATE TABLE runs (
    id       TEXT PRIMARY KEY,
    fired_by TEXT NOT NULL,
    service  TEXT NOT NULL,
    pinned   BIGINT NOT NULL, -- the run's now
    epoch    BIGINT NOT NULL,
    base     TEXT NOT NULL,
    stage    TEXT NOT NULL,
    result   TEXT NOT NULL,
    detail   TEXT NOT NULL,
    actor    TEXT NOT NULL,
    started  BIGINT NOT NULL,
    finished BIGINT NOT NULL,
    held     BIGINT NOT NULL,
    changed  BIGINT NOT NULL,
    total    BIGINT NOT NULL,
    reused   TEXT NOT NULL
);
CREATE INDEX runs_started ON runs (started, id);
CREATE INDEX runs_stage ON runs (stage, started);

-- One row per run and quota. evidence is the whole change as JSON but the
-- episodes of its backtests, which have a column of their own: lists read the
-- first, a single change reads both.
CREATE TABLE changes (
    run_id         TEXT NOT NULL,
    service        TEXT NOT NULL,
    bucket         TEXT NOT NULL,
    quota_key      TEXT NOT NULL, -- canonical text, '' without a key
    at             BIGINT NOT NULL,
    held           TEXT NOT NULL,
    logged         BOOLEAN NOT NULL, -- moved, or held for another reason than before
    policy_id      TEXT NOT NULL,
    estimate_rate  DOUBLE PRECISION, -- NULL where the policy abstained
    estimate_burst BIGINT,
    evidence       TEXT NOT NULL,
    episodes       TEXT NOT NULL,
    PRIMARY KEY (run_id, service, bucket, quota_key)
);
CREATE INDEX changes_quota ON changes (service, bucket, quota_key, at);
CREATE INDEX changes_service ON changes (service, at);

-- The newest change of each quota.
CREATE TABLE latest_changes (
    service   TEXT NOT NULL,
    bucket    TEXT NOT NULL,
    quota_key TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    at        BIGINT NOT NULL,
    held      TEXT NOT NULL,
    PRIMARY KEY (service, bucket, quota_key)
);

CREATE TABLE proposals (
    id      TEXT PRIMARY KEY,
    run_id  TEXT NOT NULL,
    service TEXT NOT NULL,
    state   TEXT NOT NULL,
    url     TEXT NOT NULL,
    branch  TEXT NOT NULL,
    head    TEXT NOT NULL, -- the branch's commit
    base    TEXT NOT NULL,
    content TEXT NOT NULL,
    human   BOOLEAN NOT NULL,
    created BIGINT NOT NULL,
    decided BIGINT NOT NULL,
    actor   TEXT NOT NULL,
    reason  TEXT NOT NULL,
    error   TEXT NOT NULL,
    changes TEXT NOT NULL -- JSON
);
CREATE INDEX proposals_created ON proposals (created, id);
CREATE INDEX proposals_service ON proposals (service, state);
CREATE INDEX proposals_state ON proposals (state, created);

-- What is to be published and was not yet. The row goes when it is done.
CREATE TABLE outbox (
    proposal_id TEXT PRIMARY KEY,
    attempts    BIGINT NOT NULL,
    not_before  BIGINT NOT NULL,
    last_error  TEXT NOT NULL
);

CREATE TABLE series (
    id        TEXT PRIMARY KEY,
    service   TEXT NOT NULL,
    bucket    TEXT NOT NULL,
    quota_key TEXT NOT NULL
);
CREATE INDEX series_service ON series (service, bucket, quota_key);

-- One row per series and UTC day; data is the encoding of package store.
CREATE TABLE series_days (
    series TEXT NOT NULL,
    day    BIGINT NOT NULL,
    sealed BIGINT NOT NULL,
    data   BYTEA NOT NULL,
    PRIMARY KEY (series, day)
);
CREATE INDEX series_days_day ON series_days (day);

CREATE TABLE verdicts (
    id        TEXT PRIMARY KEY,
    service   TEXT NOT NULL,
    bucket    TEXT NOT NULL,
    quota_key TEXT NOT NULL,
    starts    BIGINT NOT NULL,
    ends      BIGINT NOT NULL,
    reason    TEXT NOT NULL,
    counts    BOOLEAN NOT NULL,
    actor     TEXT NOT NULL,
    at        BIGINT NOT NULL
);
CREATE INDEX verdicts_service ON verdicts (service, starts);

-- What the list of services shows. search and owner_list are lower-case and
-- exact text to match in; summary is the whole row as JSON.
CREATE TABLE summaries (
    name          TEXT PRIMARY KEY,
    search        TEXT NOT NULL,
    owner_list    TEXT NOT NULL, -- '' or "\nteam-a\nteam-b\n"
    headroom      DOUBLE PRECISION, -- NULL where unknown
    virtual_drops DOUBLE PRECISION NOT NULL,
    drops         DOUBLE PRECISION NOT NULL,
    offered       DOUBLE PRECISION NOT NULL,
    quotas        BIGINT NOT NULL,
    held          BIGINT NOT NULL,
    summary       TEXT NOT NULL
);

CREATE TABLE acks (
    enforcer TEXT PRIMARY KEY,
    zone     TEXT NOT NULL,
    epoch    BIGINT NOT NULL,
    number   BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    refused  TEXT NOT NULL
);

-- Which replica fires jobs. expires is on the database's clock.
CREATE TABLE leaders (
    name    TEXT PRIMARY KEY,
    holder  TEXT NOT NULL,
    epoch   BIGINT NOT NULL,
    expires BIGINT NOT NULL
);

-- Rows are written in the transaction of the act and never changed.
CREATE TABLE audit (
    id     TEXT PRIMARY KEY,
    at     BIGINT NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX audit_at ON audit (at, id);

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
