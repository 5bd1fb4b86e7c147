"""② Merge reads of the tables into the log by watermark windows (DBLog), stricter than the paper."""
