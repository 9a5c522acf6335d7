from textwrap import dedent

import pytest

from kubenexus.install import values_schema
from kubenexus.install.values_schema import Undescribed

TEXT = dedent(
    """\
    # How many.
    # @type integer string
    replicas: 2
    # A part.
    part:
      # When it fails.
      # @enum Fail Ignore
      policy: Fail
      # Anything that Kubernetes knows.
      # @open
      resources:
        limits: {cpu: 1}
      # Labels | more.
      labels: {}
    """
)


def test_a_schema_knows_the_keys_and_no_others() -> None:
    assert values_schema.schema(values_schema.read(TEXT)) == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the kubenexus chart",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "replicas": {"description": "How many.", "type": ["integer", "string"]},
            "part": {
                "description": "A part.",
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "policy": {"description": "When it fails.", "enum": ["Fail", "Ignore"]},
                    "resources": {
                        "description": "Anything that Kubernetes knows.",
                        "type": "object",
                    },
                    "labels": {"description": "Labels | more.", "type": "object"},
                },
            },
            "global": {"type": "object"},
        },
    }


def test_the_table_lists_every_value() -> None:
    assert values_schema.table(values_schema.read(TEXT)) == dedent(
        """\
        | Value | Default | What it does |
        | --- | --- | --- |
        | `replicas` | `2` | How many. |
        | `part.policy` | `Fail` | When it fails. One of `Fail`, `Ignore`. |
        | `part.resources` | `{limits: {cpu: 1}}` | Anything that Kubernetes knows. |
        | `part.labels` | `{}` | Labels \\| more. |
        """
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: 1\n", id="no comment"),
        pytest.param("# About b.\n\na: 1\n", id="a comment that is not right above"),
        pytest.param("# @type string\na: 1\n", id="a tag alone"),
        pytest.param("# About a.\n# @typ string\na: 1\n", id="an unknown tag"),
    ],
)
def test_a_key_without_a_comment_is_an_error(text: str) -> None:
    with pytest.raises(Undescribed, match=r"^a: want a comment above it"):
        values_schema.read(text)
