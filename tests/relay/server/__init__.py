"""Its server, asked over real connections."""
