"""Message classes made of the tables, in a pool of their own.

A process may have stubs of the same packages, made of other files, in its default pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, struct_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from work_queue.service.rpc.tables import (
    ACTION_TYPES,
    LEGACY_MESSAGES,
    LEGACY_METHODS,
    MESSAGES,
    METHODS,
    Field,
    Messages,
    Method,
)

_FOREIGN = {"Value": ".google.protobuf.Value", "Any": ".google.protobuf.Any"}
_STATUS: Messages = {
    "Status": (
        Field(1, "code", "int32"),
        Field(2, "message", "string"),
        Field(3, "details", "Any", repeated=True),
    )
}
"""What the details of an error are sent in."""


class Package:
    """The messages of a package, and the service that has its methods, if there is one."""

    def __init__(
        self,
        pool: DescriptorPool,
        name: str,
        messages: Messages,
        *,
        service: str | None = None,
        methods: Sequence[Method] = (),
    ) -> None:
        self.name = name
        self.service = f"{name}.{service}"
        self.methods = tuple(methods)
        file = descriptor_pb2.FileDescriptorProto(
            name=f"stickybus/{name}.proto",
            package=name,
            syntax="proto3",
            dependency=[struct_pb2.DESCRIPTOR.name, any_pb2.DESCRIPTOR.name],
        )
        for message, fields in messages.items():
            file.message_type.add(name=message, field=[self._field(field) for field in fields])
        if service is not None:
            actions = file.enum_type.add(name="ActionType")
            for number, action in enumerate(ACTION_TYPES):
                actions.value.add(name=action, number=number)
            methods_of = file.service.add(name=service).method
            for method in methods:
                methods_of.add(
                    name=method.name,
                    input_type=self._reference(method.request),
                    output_type=self._reference(method.answer),
                    server_streaming=method.streams,
                )
        pool.Add(file)
        self._classes: dict[str, Any] = {
            message: GetMessageClass(pool.FindMessageTypeByName(f"{name}.{message}"))
            for message in messages
        }

    def __getitem__(self, message: str) -> Any:
        """The class of a message."""
        return self._classes[message]

    def _reference(self, kind: str) -> str:
        return _FOREIGN.get(kind, f".{self.name}.{kind}")

    def _field(self, field: Field) -> descriptor_pb2.FieldDescriptorProto:
        kinds = descriptor_pb2.FieldDescriptorProto
        made = kinds(
            name=field.name,
            number=field.number,
            label=kinds.LABEL_REPEATED if field.repeated else kinds.LABEL_OPTIONAL,
        )
        if field.kind.islower() or field.kind[-1].isdigit():
            made.type = kinds.Type.Value(f"TYPE_{field.kind.upper()}")
        else:
            is_enum = field.kind == "ActionType"
            made.type = kinds.TYPE_ENUM if is_enum else kinds.TYPE_MESSAGE
            made.type_name = self._reference(field.kind)
        return made


def _pool() -> DescriptorPool:
    """A pool with what the packages need, and with what servers have besides."""
    pool = DescriptorPool()
    for module in (struct_pb2, any_pb2, health_pb2, reflection_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
    return pool


POOL = _pool()
API = Package(POOL, "api", MESSAGES, service="EntroQ", methods=METHODS)
LEGACY = Package(POOL, "proto", LEGACY_MESSAGES, service="EntroQ", methods=LEGACY_METHODS)
STATUS = Package(POOL, "google.rpc", _STATUS)["Status"]
