"""A folder on the path of Spark's Python workers, and of nobody else."""
