"""
Watches that are not pods and nodes.

    policies  reload policy files and policy objects
"""
