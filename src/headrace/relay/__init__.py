"""④ Capture a source into the change log, and serve it."""
