"""Other hosts as places for workers: one agent a host, reached by ssh or Ray."""
