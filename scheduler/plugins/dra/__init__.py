"""
Devices by claim (dynamic resource allocation, `resource.k8s.io/v1`): what the API says of them, and
what becomes of the claims of a pod.

    devices      slices and their devices as frozen values
    objects      claims and classes, likewise
    facts        all of them, with indexes: pools, and who holds which device
    feeds        the watches that tell them
    selecting    CEL selectors over devices
    nodes        which nodes a slice, a device or an allocation belongs to
    ordering     which devices to try first, so that islands stay whole
    allocating   devices of one node for the claims of one pod, or why there are none
    claims       a pod's claims, sorted by what is to be done about them, or what is amiss
    writing      an allocation as the API takes it
    preparing    writing it before a bind, and taking it back when the bind fails
    aside        pods that nobody plans before their claims have been made

`scheduler.plugins.dra.plugin` ties these to a snapshot. Not modelled, and reported where it
matters: devices that several claims share by capacity, devices that must be made ready before a
bind, claims of whole pod groups, and extended resources that a device class stands for.
"""
