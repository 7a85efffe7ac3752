"""The daemon's front ends: messages to requests, answers to messages. Shell."""
