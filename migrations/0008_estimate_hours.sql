-- Limits hour by hour that a policy estimated, as JSON; NULL where one stood for
-- all hours. The guards ask for those of the last days.
ALTER TABLE changes ADD COLUMN estimate_hours TEXT;
