"""Debezium's embedded engine as a peer: its jars, a small Java program around it, and the settings tried."""
