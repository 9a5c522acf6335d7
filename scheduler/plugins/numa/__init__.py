"""
The inside of hosts: NUMA nodes, GPUs, and the pods that use them.

    plugin             the plugin: state, filters and scores below, in one class
    host_usage         free capacity of each NUMA node and free GPUs of one host
    numa_table         the same for all hosts, as arrays
    allocator          the choice of NUMA nodes and GPUs for a pod
    candidates         NUMA nodes that a pod may use, and what each offers
    numa_score         score of one NUMA node
    host_score         score of each host by its best NUMA node
    gpu_islands        the choice of GPUs by NVLink islands and PCIe switches
    gpu_packing        costs of hosts by the islands that stay whole
    topology_manager   a model of the kubelet's Topology Manager
"""
