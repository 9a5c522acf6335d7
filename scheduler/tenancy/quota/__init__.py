"""
Quotas: tenant tree, usage, checks.

    accounting   pod -> usage, quota check of a unit
    enforcer     plan within quota; units waiting for quota
    entitlement  units that come within their guarantee while waiting
    gpu_kinds    quota names of a node's GPUs
    ledger       usage per tenant and group, with trials
    tree         tenant tree, weights, quotas
"""
