"""A run of operators as shards and a join: what each needs, reads and makes. Pure."""
