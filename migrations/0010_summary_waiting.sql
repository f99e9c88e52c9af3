-- What of a service waits for a person: would-be drops that nobody judged, and
-- buckets in shadow whose checklist lacks only somebody's word. 0 until it is next
-- summed up.
ALTER TABLE summaries ADD COLUMN unjudged DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE summaries ADD COLUMN ready BIGINT NOT NULL DEFAULT 0;
