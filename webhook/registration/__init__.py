"""
The webhook configurations and their rules, kept in step with the policies.

    configurations  the two webhook configurations
    rule_sync       keep registered rules in step with policies
    rules           resources and operations to be sent
"""
