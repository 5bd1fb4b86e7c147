"""Whether a configuration can do what it says, before anything is started: problems, tables, columns, estimates."""
