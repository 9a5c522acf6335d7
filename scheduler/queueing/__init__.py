"""
The scheduling queue.

    active            active queue: a heap per tenant, fair-share order
    entry             one queued unit
    scheduling_queue  the scheduling queue: state machine of units
    unschedulable     unschedulable units by equivalence class
    view              read side and ordering of the queue (composition, not base class)
"""
