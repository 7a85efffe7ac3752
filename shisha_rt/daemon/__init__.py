"""The serving daemon: a pure lifecycle table, and the shell that carries out its instructions."""
