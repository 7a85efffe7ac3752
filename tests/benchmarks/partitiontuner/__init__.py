"""Tests of the PartitionTuner paper's repetition: what is counted and stated, and the random schedules."""
