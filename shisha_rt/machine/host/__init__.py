"""What this host has, and what of it a process may use: cores, limits of its control group, leases, CPU time. Shell."""
