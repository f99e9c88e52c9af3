-- Whether a run's change would alter quotas.yaml; NULL in rows from before, of
-- which held and logged tell nearly the same.
ALTER TABLE changes ADD COLUMN moved BOOLEAN;
-- A run is summed up by service from this alone, without its evidence.
CREATE INDEX changes_run ON changes (run_id, service, held, logged, moved);
