"""
ResourceReservations: capacity for gang members not created yet and for tenants.

    controller          reservations in the API and after a restart
    members             capacity for gang members not created yet
    objects             ResourceReservation values
    relocation          replace places on lost nodes
    tenant_active       tenant reservations in effect
    tenant_reservation  one tenant reservation
    tenant_upcoming     tenant reservations ahead of time
    writer              create, status, delete (`Recorder` -> `ReservationWriter`)
"""
