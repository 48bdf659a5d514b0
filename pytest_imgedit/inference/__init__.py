"""What editors and judges share inside a worker: how checkpoints are read and checked, and what fixes their numbers."""
