"""
The chart's values, from the keys, defaults and comments of its values.yaml.
"""

from kubenexus.install import values_schema
from kubenexus.reference import markdown


def page(text: str) -> str:
    """`text` is that of values.yaml."""
    return markdown.page(
        "Chart values",
        "Of `charts/kubenexus`. An unknown key is refused by the chart's schema.",
        values_schema.table(values_schema.read(text)),
    )
