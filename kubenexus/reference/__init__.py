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

from kubenexus.reference import commands, fields, figures, happenings, settings, words


def pages(*, values: str | None = None) -> Mapping[str, str]:
    """Path below the repository -> text; `values` is the text of the chart's values.yaml."""
    made = {
        "docs/reference/keys.md": words.page(),
        "docs/reference/policy.md": fields.page(),
        "docs/reference/reservation.md": fields.reservation_page(),
        "docs/reference/cli.md": commands.page(),
        "docs/reference/metrics.md": figures.page(),
        "docs/reference/events.md": happenings.page(),
    }
    if values is not None:
        made["docs/reference/values.md"] = settings.page(values)
    return made
