"""What turns a source image and an instruction into an edited image."""
