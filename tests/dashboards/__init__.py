"""What people watch daemons with: the dashboard and the alerts."""
