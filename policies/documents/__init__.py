"""
Policy documents: YAML with positions, the models, and what is generated from them.

    crds             CustomResourceDefinitions from the models
    faults           one problem of a document at one place
    json_schemas     JSON Schemas from the models
    label_selectors  label selector matching and index pair
    policy           PlatformPolicy, TenantPolicy models
    policy_test      PolicyTest model
    positions        position inside a YAML scalar
    reservation      ResourceReservation model
    rules            selectors, rules, defaults, validations
    tenancy          quota, sharing, backfill models
    yaml_reader      YAML with the position of every value
"""
