-- Whether a run's change would alter quotas.yaml; NULL in rows from before, of
-- which held and logged tell nearly the same.
ALTER TABLE changes ADD COLUMN moved BOOLEAN;
