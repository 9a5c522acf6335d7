"""
Admission decisions: mutate, validate, guard. Pure.

    audit          Events and audit annotations of a decision
    decide         mutate and validate, pure
    guards         what may not be done to admitted objects
    profile        the profile annotation
    tenant_claims  tenant and tier labels users may set
"""
