-- A run that waits for a person was let go by its driver: it wants none as long as its last event is this one.
ALTER TABLE heads ADD COLUMN rests INTEGER NOT NULL DEFAULT 0;

-- Of whoever drove the run last.
ALTER TABLE heads ADD COLUMN version TEXT NOT NULL DEFAULT '';
