"""
The policies of the webhook: from files and from policy objects.

    reloader       load policies again when files or objects change
    status_writer  status.conditions of policy objects, Events about faults
"""
