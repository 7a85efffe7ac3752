"""One-shot processes that the control plane starts: compile, calibrate, profile. Shell."""
