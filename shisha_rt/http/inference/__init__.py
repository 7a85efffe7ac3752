"""The Open Inference Protocol, version 2, with the extensions that its clients use. Shell."""
