"""Pending pods in, whole-gang plans, bindings out."""
