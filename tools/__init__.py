"""What makes parts of this repository: the embedded models, and the tables of the docs."""
