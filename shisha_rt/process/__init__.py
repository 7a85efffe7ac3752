"""How processes start, end with their parent, talk, and share memory. Shell."""
