"""
ProvisioningRequests (`autoscaling.x-k8s.io`): nodes requested for a gang as a whole.

    controller  gangs that do not fit, their requests and the autoscaler's responses
    decision    what to do about the requests of a gang; pure
    informers   watches the kind where the API server serves it
    objects     ProvisioningRequests and PodTemplates as values
    writer      creates and deletes them through the API server
"""
