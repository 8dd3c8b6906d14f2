"""One module per command, and one for all verbs. A module is loaded when its command is used."""
