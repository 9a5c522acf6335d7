"""
Plans one unit on the snapshot. Pure.

    attempts     attempts per domain and per order of classes; the best wins
    colocation   gangs that must share a topology domain
    filters      runs the filter plugins and counts the reasons
    memo         memoised results of filters and plans
    node_choice  fewest nodes, narrowest domain, tightest fit
    placement    one attempt: places class by class
    planner      plans a unit on the snapshot
    requeueing   which unschedulable pods a change may help, in slices
    scores       kube-scheduler's default scores
"""
