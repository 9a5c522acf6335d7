"""
The reference pages of the documentation, made from the code that they are about. Pure.

    words       every label and annotation, from `policies.vocabulary`
    fields      policies and reservations, from the models that read them
    commands    the command line, from the functions behind it
    figures     metrics, from the places that declare them
    happenings  Events and conditions, from the constants that are written
    settings    the chart's values, from values.yaml and its comments

`kubenexus.generate` writes the pages below `docs/reference`; a test compares them with the tree.
Guides, which people write, are not made here.
"""

from collections.abc import Mapping

from kubenexus.reference import chart_values, cli, events, keys, metrics, policy_fields


def pages(*, values: str | None = None) -> Mapping[str, str]:
    """Path below the repository -> text; `values` is the text of the chart's values.yaml."""
    made = {
        "docs/reference/keys.md": keys.page(),
        "docs/reference/policy.md": policy_fields.page(),
        "docs/reference/reservation.md": policy_fields.reservation_page(),
        "docs/reference/cli.md": cli.page(),
        "docs/reference/metrics.md": metrics.page(),
        "docs/reference/events.md": events.page(),
    }
    if values is not None:
        made["docs/reference/values.md"] = chart_values.page(values)
    return made
