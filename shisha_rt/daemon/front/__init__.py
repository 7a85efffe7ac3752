"""Where clients knock: messages to requests, answers to messages. Shell."""
