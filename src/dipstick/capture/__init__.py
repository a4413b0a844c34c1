"""Facts from the machine: what the GPUs can tell (the recorder comes with a later version)."""
