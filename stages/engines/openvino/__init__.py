"""OpenVINO: sessions and their profiler. Shell."""
