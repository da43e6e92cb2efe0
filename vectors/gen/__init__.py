"""The golden vectors, one module for each group. See ../README.md."""
