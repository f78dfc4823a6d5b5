"""The command `rarecall`, one module per sub-command."""
