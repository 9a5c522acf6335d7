"""
Planning one unit on the snapshot. Pure.

    attempts     attempts per domain and order, best kept
    colocation   gangs that must share a topology domain
    filters      run the filter plugins, count the reasons
    node_choice  fewest nodes, narrowest domain, tightest fit
    placement    one attempt: place class by class
    planner      plan a unit on the snapshot
    scores       kube-scheduler's default scores
"""
