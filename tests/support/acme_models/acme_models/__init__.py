"""An editor with weights, and a judge of another family than Qwen-VL."""
