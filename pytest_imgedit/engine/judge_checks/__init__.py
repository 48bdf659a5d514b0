"""Whether the judge can be believed: edits of known quality, and the same edits judged again."""
