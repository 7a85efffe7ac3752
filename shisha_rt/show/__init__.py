"""What plans, placements and events look like in words and pictures, for commands and the page. Shell."""
