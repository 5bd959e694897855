"""One script for each change of the state database. A released script is never changed."""
