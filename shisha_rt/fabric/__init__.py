"""What processes share: the arena, the board, the messages between them, and how they are started. Shell."""
