"""The serving daemon: one loop around three pure cores, which carries out what they say. Shell."""
