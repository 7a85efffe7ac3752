"""PartitionTuner: schemes that schedule partitions over places, and the programs that it writes. Pure."""
