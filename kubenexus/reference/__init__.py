"""
The reference pages of the documentation, generated from the code they describe. Pure.

    keys           every label and annotation, from `policies.vocabulary`
    keys_hardware  those about GPUs, fabric and topology
    bounds         longest texts and largest values, from `policies.bounds`
    key_row        one row of these tables
    policy_fields  policies and reservations, from their models
    cli            the command line, from its functions
    metrics        metrics, from the modules that declare them
    events         Events and conditions, from their constants
    chart_values   the chart's values, from values.yaml and its comments
    markdown       tables and headings

`kubenexus.generate` writes the pages to `docs/reference`; a test compares them with the tree.
"""

from collections.abc import Mapping

from kubenexus.reference import bounds, chart_values, cli, events, keys, metrics, policy_fields


def pages(*, values: str | None = None) -> Mapping[str, str]:
    """Path below the repository -> text; `values` is the text of the chart's values.yaml."""
    made = {
        "docs/reference/keys.md": keys.page(),
        "docs/reference/bounds.md": bounds.page(),
        "docs/reference/policy.md": policy_fields.page(),
        "docs/reference/reservation.md": policy_fields.reservation_page(),
        "docs/reference/cli.md": cli.page(),
        "docs/reference/metrics.md": metrics.page(),
        "docs/reference/events.md": events.page(),
    }
    if values is not None:
        made["docs/reference/values.md"] = chart_values.page(values)
    return made
