-- Until when a lease holds by a clock that nobody sets: that of the boot `boot_id`. 0: not known, `deadline` decides.
ALTER TABLE leases ADD COLUMN until REAL NOT NULL DEFAULT 0;
