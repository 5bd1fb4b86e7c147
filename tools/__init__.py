"""Scripts that keep the project in order; standard library only."""
