"""The parent of a recorded run: starts the command, samples the host and its GPUs, closes the recording."""
