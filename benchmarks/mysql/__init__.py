"""What reads a binary log or a table of MySQL and MariaDB, ours and others, side by side."""
