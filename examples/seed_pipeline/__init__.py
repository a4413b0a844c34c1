"""The seed's pipeline: GRPO with colocated vLLM, text rewards, and GNN workers behind a process pool."""
