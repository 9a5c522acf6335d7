"""
How the scheduler divides a cluster between tenants.

    context      what the parts need of the scheduler around them
    manager      the interface to the cycle
    backfill     start reservations, and units that run before them
    fairshare    the order of tenants
    preemption   candidates, victims, evictions
    quota        tenant tree, usage, limits, guarantees
    reservation  reserved capacity of gangs and tenants
"""
