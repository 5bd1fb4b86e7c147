"""The control plane over HTTP: who may ask, what for, and how answers look."""
