"""The serving daemon: one loop around three pure cores, whose instructions it carries out. Shell."""
