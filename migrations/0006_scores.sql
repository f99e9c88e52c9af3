-- How well services are limited, day by day: one row of the fleet, one of each
-- owner.
CREATE TABLE scores (
    day      BIGINT NOT NULL,
    fleet    BOOLEAN NOT NULL,
    owner    TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (day, fleet, owner)
);
