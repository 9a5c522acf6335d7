"""
Fair-share order between tenants.

    persistence  usage in the status of policy objects
    shares       decayed dominant share and tenant order
"""
