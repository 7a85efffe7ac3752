"""Reading machine files, and finding out about this machine."""
