"""
Types that the checker knows beside CEL's own: a Pod's fields, and quantities, addresses and the
like.

They are protobuf messages in a descriptor pool, as that is the form in which the engine takes
types. No such message ever exists at run time: programs see raw JSON.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Iterable, Mapping
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2

PACKAGE: Final = "kubernetes"
POD: Final = f"{PACKAGE}.Pod"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int": _Field.TYPE_INT64,
    "double": _Field.TYPE_DOUBLE,
}


@functools.cache
def pod_types() -> tuple[str, Mapping[str, Mapping[str, str]]]:
    """The Kubernetes version and type name -> field -> type, as in `pod_schema.json`."""
    text = importlib.resources.files(__package__).joinpath("pod_schema.json").read_text("utf-8")
    document = json.loads(text)
    return document["kubernetes"], document["types"]


def pool(opaque: Iterable[str]) -> descriptor_pool.DescriptorPool:
    """A pool with the Pod's types and an empty message for each type of our own."""
    made = descriptor_pool.DescriptorPool()
    made.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    packages: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for name in sorted(opaque):
        package, _, short = name.rpartition(".")
        _file(packages, package).message_type.add(name=short)
    for name, fields in pod_types()[1].items():
        _describe(_file(packages, PACKAGE).message_type.add(name=name), name, fields)
    for file in packages.values():
        made.AddSerializedFile(file.SerializeToString())
    return made


def _file(
    packages: dict[str, descriptor_pb2.FileDescriptorProto], package: str
) -> descriptor_pb2.FileDescriptorProto:
    if package not in packages:
        packages[package] = descriptor_pb2.FileDescriptorProto(
            name=f"{package}.proto",
            package=package,
            syntax="proto3",
            dependency=["google/protobuf/struct.proto"],
        )
    return packages[package]


def _describe(
    message: descriptor_pb2.DescriptorProto, name: str, fields: Mapping[str, str]
) -> None:
    for number, (field, kind) in enumerate(fields.items(), start=1):
        made = message.field.add(name=field, number=number, label=_Field.LABEL_OPTIONAL)
        if kind.startswith("list<"):
            made.label = _Field.LABEL_REPEATED
            _set_type(made, kind[5:-1])
        elif kind.startswith("map<"):
            made.label = _Field.LABEL_REPEATED
            # The name is not free: protobuf knows a map by it.
            entry = message.nested_type.add(name=f"{field[0].upper()}{field[1:]}Entry")
            entry.options.map_entry = True
            key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL)
            _set_type(key, "string")
            value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
            _set_type(value, kind.removeprefix("map<string,")[:-1])
            made.type = _Field.TYPE_MESSAGE
            made.type_name = f".{PACKAGE}.{name}.{entry.name}"
        else:
            _set_type(made, kind)


def _set_type(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        field.type = scalar
        return
    field.type = _Field.TYPE_MESSAGE
    known = kind in pod_types()[1]
    field.type_name = f".{PACKAGE}.{kind}" if known else ".google.protobuf.Value"
