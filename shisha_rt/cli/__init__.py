"""The `shisha-rt` command, one file per subcommand. Shell."""
