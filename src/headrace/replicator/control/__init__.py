"""The control plane: many replicators in namespaces, and one process that keeps each as people want it."""
