"""
Inter-pod affinity and topology spread.

    affinity         InterPodAffinity
    default_spread   default spreading constraints by Service/ReplicaSet
    existing_terms   affinity terms of placed pods
    informers        namespaces, services, controllers to watch
    plugin           entry point of affinity and spread
    pod_counts       pods selected per row (with kinds.py); records of the counts
    pod_records      ?
    selector_index   which selectors in use match a pod
    topology_spread  PodTopologySpread
"""
