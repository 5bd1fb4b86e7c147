"""Which column of a target comes from which columns of the source, and who is told of it."""
