"""
What pods and workload objects request, read once from raw JSON.

    fabric     co-locate, clique and fabric annotations
    intent     what a pod requests of placement, read once
    members    pod templates with their intent
    requests   effective resource requests of a pod
    workloads  pod templates and replica counts per workload kind
"""
