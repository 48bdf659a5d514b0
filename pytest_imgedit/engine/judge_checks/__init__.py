"""Whether the judge can be believed: edits of known worth, and the same edits judged again."""
