"""The stage-and-connection JSON of the Replicator's design, read into our own configuration and written back."""
