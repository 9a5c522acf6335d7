"""
Watches besides pods and nodes.

    policies  policy files and policy objects, as placement tables
"""
