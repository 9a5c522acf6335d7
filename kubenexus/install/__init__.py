"""
`kubenexus install`: the hooks of the chart.

    cli               options -> one of the commands below
    before install:   certificates
      cert_rotation     when certificates are renewed; pure
      cert_secrets      the secrets that hold them, without cert-manager
    after install:    register, probe
      register          register the webhook configurations once the webhook is ready
      probe             does admission answer: a pod and an impossible Job, by dry run
    before uninstall: cleanup
      uninstall         unregister, then remove scheduling gates

and the generated parts of the chart:

    chart             registration, roles, CRDs, values schema
    values_schema     values.yaml -> JSON Schema and table
    render_manifests  the chart as plain manifests
"""
