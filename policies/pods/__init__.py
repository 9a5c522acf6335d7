"""
What pods and workload objects request, read once from raw JSON.

    fabric     co-locate, clique and fabric annotations
    intent     what a pod asks of placement, read once
    requests   effective resource requests of a pod
    workloads  pod templates and replica counts per workload kind
"""
