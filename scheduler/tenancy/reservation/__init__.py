"""
ResourceReservations: capacity for gang members that do not exist yet, and for tenants.

    controller          the objects: watch, create, status, delete, restore after a restart
    members             capacity reserved for gang members that do not exist yet
    objects             ResourceReservation objects as values
    relocation          moves reserved capacity off lost nodes
    tenant_active       tenant reservations in effect
    tenant_reservation  one tenant reservation as a value
    tenant_upcoming     tenant reservations that have not begun
    writer              creates objects, updates their status, deletes them
"""
