"""
Persistent volumes: what the API says of them, and what becomes of the claims of a pod.

    objects      claims, volumes, classes … as frozen values
    facts        all of them, with indexes
    feeds        the watches that tell them
    labels       selectors over labels, of one object and over all nodes at once
    claims       a pod's claims, sorted by what is to be done about them, or what is amiss
    matching     which volume a late claim gets on which node, and where one could be made
    limits       how many volumes of a CSI driver each node has
    preparing    writing the choice into the API and waiting until it holds

The books that tie these to a snapshot are `scheduler.plugins.volumes.plugin`.
"""
