"""What benchmarks run: daemons, workers, engines and clients in separate processes."""
