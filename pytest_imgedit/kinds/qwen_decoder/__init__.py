"""What turns a source, an edit, an instruction and a protocol into a verdict."""
