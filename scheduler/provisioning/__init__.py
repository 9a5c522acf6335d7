"""
Nodes for gangs that lack room, asked for as a whole: ProvisioningRequests (`autoscaling.x-k8s.io`).

    objects     the objects: read, and written out
    deciding    who asks for whom, and what is to be done about a gang's requests; pure
    writing     the API server's part: templates and requests, made and deleted
    asking      what the cycle meets: gangs that did not fit, requests that were answered
"""
