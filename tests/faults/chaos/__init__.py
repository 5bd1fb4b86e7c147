"""What the chaos test is made of: processes, what breaks them, what they were told, and their source."""
