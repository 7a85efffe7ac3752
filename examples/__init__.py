"""Programs that use a daemon, to read and to copy from; docs/examples.md shows them at work."""
