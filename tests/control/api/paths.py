"""Paths of the API that most of its tests ask for."""

NS = "/v1/contexts/default"
SHOP = f"{NS}/replicators/shop"
