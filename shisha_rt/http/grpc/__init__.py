"""The Open Inference Protocol over gRPC, in the process that speaks HTTP. Imported only where it is served. Shell."""
