"""What benchmarks run: daemons, workers, engines and clients in processes of their own."""
