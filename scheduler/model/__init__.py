"""
Values read from API objects: pods, nodes, gangs, plans. No state, no I/O.

    assignment       NUMA/GPU assignment and its annotation
    attributes       tenant, tier, preemptible, duration, grace of a pod
    fabric           co-location, fabric and hardware-tier requirements
    fields           lenient JSON field access
    host_ports       host ports
    label_selector   label selectors as values (takes the parsing half of volumes/labels)
    node_affinity    node affinity, declared features, images
    numa_request     what a pod asks of a host's inside (`Ask`, `Need`)
    plan             Placement, Placed, NoFit (+ `Occupant` = Placement, + bind results); `Bound`, …
    pod              Pod and Shape
    pod_affinity     inter-pod (anti-)affinity and topology spread terms
    pod_volumes      a pod's volumes that constrain placement
    policy           topology levels, GPU models, tiers from the policies in force
    resource_claims  a pod's DRA claim references
    taints           taints and tolerations
    unhonoured       ?
    unit             Unit: one pod or one gang, planned together; `PartialGang` value
"""
