"""
Start reservations, and which units may start ahead of them.

    blocked         ?
    controller      start reservations and who may backfill; a blocked unit's sort key
    lower_bound     time before which a unit cannot fit
    quota_forecast  quota at a future start
    run_time        expected run time and end of work
    start_time      earliest start on trials
"""
