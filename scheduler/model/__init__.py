"""
Values read from API objects: pods, nodes, gangs, plans. No state, no I/O.

    assignment         NUMA nodes and GPUs of a pod, and the annotation
    attributes         tenant, tier, preemptible, duration, grace period of a pod
    fabric             co-location and fabric requirements, tiers of a pod
    fields             lenient access to JSON fields
    gang               GangKey, Gang, PodGroup
    label_selector     label selectors and node selector terms as values
    node               Node, and its images
    node_affinity      node affinity, declared features, images of a pod
    numa_request       what a pod requests inside one host: HostRequest, ContainerRequest
    over_quota         a quota that a unit would exceed, and its sentence
    placeholder        placeholder pods for members that do not exist yet
    plan               Placement, Placed, NoFit, and the results of a bind
    pod                Pod and SchedulingSpec, host ports
    pod_affinity       inter-pod (anti-)affinity and topology spread
    pod_volumes        a pod's volumes that constrain its placement
    policy             topology levels, GPU models, tiers from the policies in force
    resource_claims    a pod's references to ResourceClaims
    resources          resource names, the cap on amounts, default requests of scores
    taints             taints and tolerations
    unit               Unit: one pod or one gang, planned together; PartialGang, StartReservation
"""
