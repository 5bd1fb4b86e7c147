"""What tests and the demo need and production does not: real servers in temporary folders, fakes, oracles."""
