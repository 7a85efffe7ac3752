"""What daemon and workers share: the arena, the board, and the messages between them. Shell."""
