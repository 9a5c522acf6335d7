"""
Where the webhook's policies come from: files and policy objects.

    objects   policy objects: watch and status
    reloader  reload policies from files and objects
"""
