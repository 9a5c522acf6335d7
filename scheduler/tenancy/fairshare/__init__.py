"""
Fair-share order between tenants.

    decay         advances the shares while time passes
    persistence   usage in the status of policy objects
    shares        decayed dominant share and tenant order
    tenant_order  tenants with active units, in that order
"""
