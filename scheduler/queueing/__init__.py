"""
The scheduling queue: units that have no node yet.

    active            active queue: a heap per tenant, fair-share order between tenants
    entry             one queued unit: its pods, state and backoff
    over_quota        units over quota by the limit that they exceed
    retry_line        speculative retries, a few at a time
    scheduling_queue  the queue: state machine of units
    unit_builder      counts a gang's members and builds the unit to plan
    unschedulable     unschedulable units by equivalence class
"""
