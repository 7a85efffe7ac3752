"""The process that sends traces of frames."""
