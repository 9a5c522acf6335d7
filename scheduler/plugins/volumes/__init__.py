"""
Volumes: VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone.

    binding        which volume a PVC with delayed binding gets on each node
    csi_limits     volumes per CSI driver and node
    informers      the storage resources to watch
    plugin         the plugin: mounted volumes per row, and the filters
    pod_claims     a pod's PVCs by their binding, or the problem with them
    prebind        write the decision and wait until the PVCs are bound
    storage_types  PVC, PV, StorageClass, CSINode and others as values
    store          the watched storage objects with indexes
"""
