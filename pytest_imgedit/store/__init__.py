"""What is kept between runs: images, edits, verdicts, runs."""
