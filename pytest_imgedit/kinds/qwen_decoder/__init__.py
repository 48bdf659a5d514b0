"""What turns a source, an edit, an instruction and a rubric into a verdict."""
