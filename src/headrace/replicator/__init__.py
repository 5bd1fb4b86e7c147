"""What people operate: the configuration, the processes and how they are watched."""
