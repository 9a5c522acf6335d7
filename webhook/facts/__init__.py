"""
Cluster facts that a decision needs: namespaces, owners, Kueue queues.

    cluster_facts  look up the facts that a decision needs
    errors         `FactsUnavailable`
    kueue_queues   watched LocalQueues and ClusterQueues
    queue_lookup   which Kueue queue a workload is in
"""
