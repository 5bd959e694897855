"""The HTTP interface of docs/api.md and the page's files."""
