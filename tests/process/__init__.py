"""What daemon and workers share."""
