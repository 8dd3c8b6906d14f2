"""One module per command. What a command needs it imports when it runs."""
