"""
Dynamic resource allocation (`resource.k8s.io/v1`): kube-scheduler's DynamicResources.

    allocator       bounded search for the devices of a pod's claims on one node
    cel_selectors   CEL device selectors
    claim_types     ResourceClaim and DeviceClass as values
    device_order    the order of devices that keeps NVLink islands whole
    device_types    ResourceSlice, Device and DeviceTaintRule as values
    informers       the DRA resources to watch
    node_devices    the devices that each node can reach, cached
    node_selector   the nodes that reach a slice, a device or an allocation
    numa_alignment  NUMA nodes and devices of a pod that match each other
    plugin          the plugin: assumed allocations, filter and cost
    pod_claims      a pod's claims by their allocation, or the problem with them
    prebind         write allocation and reservation before a bind, roll back after a failure
    store           the watched claims, slices, classes and taint rules with indexes
    unready_pods    pods whose claims do not exist yet

Not modelled, and reported where it matters: devices that several claims share by capacity, devices
with binding conditions, claims of whole pod groups, and extended resources of a device class.
"""
