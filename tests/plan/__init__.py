"""Plans and their independent checker."""
