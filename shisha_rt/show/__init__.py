"""Plans, placements and events in words and pictures, for commands and the page. Shell."""
