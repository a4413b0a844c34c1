"""Real recordings shipped with dipstick; scripts/make_samples.py makes them from the traces."""
