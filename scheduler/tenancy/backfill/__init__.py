"""
Backfill: start reservations for blocked units, and which other units may start ahead of them.

    blocked_units   units that wait for a start reservation, as values
    controller      adds, checks and moves start reservations; limits other plans by them
    lower_bound     time before which a unit cannot fit, by resource amounts alone
    quota_forecast  quota that is free at a future start
    run_time        expected duration of pods, and when running pods are expected to end
    start_time      earliest start of a unit, on trials of the snapshot
"""
