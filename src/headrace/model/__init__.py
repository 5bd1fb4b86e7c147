"""What flows: pure values that every other package carries."""
