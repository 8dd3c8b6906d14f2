"""Programs that know nothing of Checkrein, as runs: `checkrein exec -- COMMAND`."""
