"""
Built-in checks: what admission denies or warns about besides policies.

    gang           built-in check: gang size, roles
    numa           built-in check: pod larger than any NUMA node
    pod_group      built-in check: size and timeout of a PodGroup object
    policy_object  built-in check of a policy or reservation being written
    quota          built-in check: can never fit the tenant's quota
    reservation    built-in warnings about a reservation
"""
