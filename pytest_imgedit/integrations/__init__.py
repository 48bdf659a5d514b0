"""The editor inside other frameworks."""
