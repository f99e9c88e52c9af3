-- Buckets on their way from shadow to enforce, and those that were.
CREATE TABLE promotions (
    id       TEXT PRIMARY KEY,
    service  TEXT NOT NULL,
    bucket   TEXT NOT NULL,
    state    TEXT NOT NULL,
    started  BIGINT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX promotions_service ON promotions (service, started, id);
CREATE INDEX promotions_state ON promotions (state);

-- Numbers that no run proposes again.
CREATE TABLE pins (
    id       TEXT PRIMARY KEY,
    service  TEXT NOT NULL,
    at       BIGINT NOT NULL,
    lifted   BIGINT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX pins_service ON pins (service, lifted);

-- What people are told, one row for each target. A row stays when it is sent:
-- it keeps the same notice from being told twice.
CREATE TABLE notices (
    id         TEXT NOT NULL,
    target     TEXT NOT NULL,
    at         BIGINT NOT NULL,
    urgent     BOOLEAN NOT NULL,
    attempts   BIGINT NOT NULL,
    not_before BIGINT NOT NULL,
    sent       BIGINT NOT NULL,
    last_error TEXT NOT NULL,
    document   TEXT NOT NULL,
    PRIMARY KEY (id, target)
);
CREATE INDEX notices_sent ON notices (sent, at);
