"""The parts of the version-7 report format that are read, as protobuf message classes built at run time.

Written from NVIDIA's public Customization Guide (the framing of the file) and from reports themselves (field
numbers and types). Text is declared as bytes and decoded by us, so that invalid UTF-8 is an error of ours
with a place. Fields whose content is not needed are declared too (``bytes``, ``uint64``): a field that no
report of any writer has is then told from one that is only uninteresting.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_KINDS = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "bytes": _KINDS.TYPE_BYTES,
    "uint32": _KINDS.TYPE_UINT32,
    "uint64": _KINDS.TYPE_UINT64,
    "double": _KINDS.TYPE_DOUBLE,
    "float": _KINDS.TYPE_FLOAT,
}
_LABELS = {
    "required": _KINDS.LABEL_REQUIRED,
    "optional": _KINDS.LABEL_OPTIONAL,
    "repeated": _KINDS.LABEL_REPEATED,
}

# message: (number, name, label, type); a type that is no scalar is another message of this table.
_FIELDS: dict[str, list[tuple[int, str, str, str]]] = {
    "FileHeader": [(1, "version", "required", "uint32")],
    "BlockHeader": [
        (1, "sources", "required", "uint64"),
        (2, "results", "required", "uint64"),
        (3, "session", "optional", "bytes"),
        (4, "strings", "optional", "bytes"),
        (5, "payload", "required", "uint64"),
        (6, "process", "optional", "bytes"),
        (7, "range_results", "optional", "uint64"),
        (10, "other_results", "optional", "uint64"),
    ],
    "StringTable": [(1, "strings", "repeated", "bytes")],
    "Session": [
        (2, "created", "optional", "uint64"),
        (3, "target_system", "optional", "bytes"),
        (4, "host_system", "optional", "bytes"),
        (6, "devices", "repeated", "Device"),
        (8, "versions", "repeated", "Version"),
        (9, "process", "optional", "bytes"),
        (10, "options", "optional", "bytes"),
        (11, "command_line", "repeated", "bytes"),
    ],
    "Version": [(1, "name", "required", "bytes"), (2, "value", "required", "bytes")],
    "Device": [
        (1, "id", "optional", "uint64"),
        (2, "name", "required", "bytes"),
        (3, "attributes", "repeated", "Attribute"),
    ],
    "Attribute": [(1, "name", "required", "bytes"), (2, "value", "required", "Value")],
    "Value": [
        (1, "text", "optional", "bytes"),
        (2, "float", "optional", "float"),
        (3, "double", "optional", "double"),
        (4, "uint32", "optional", "uint32"),
        (5, "uint64", "optional", "uint64"),
    ],
    "Result": [
        (1, "thread", "optional", "uint64"),
        (2, "field_2", "optional", "uint64"),
        (3, "field_3", "optional", "uint64"),
        (4, "field_4", "optional", "uint64"),
        (5, "mangled", "optional", "bytes"),
        (6, "function", "required", "bytes"),
        (7, "demangled", "optional", "bytes"),
        (8, "field_8", "optional", "uint64"),
        (9, "field_9", "optional", "Dimensions"),
        (10, "grid", "required", "Dimensions"),
        (11, "block", "required", "Dimensions"),
        (13, "metrics", "repeated", "bytes"),
        (14, "time", "optional", "uint64"),
        (15, "field_15", "optional", "bytes"),
        (16, "device", "optional", "uint32"),
        (17, "sections", "repeated", "bytes"),
        (18, "field_18", "repeated", "SectionBody"),
        (19, "rules", "repeated", "bytes"),
        (21, "nvtx", "optional", "bytes"),
        (22, "context", "optional", "uint64"),
        (23, "stream", "optional", "uint64"),
        (25, "field_25", "optional", "bytes"),
        (28, "field_28", "repeated", "bytes"),
        (31, "field_31", "optional", "bytes"),
        (35, "field_35", "optional", "float"),
        (38, "field_38", "optional", "bytes"),
    ],
    "Dimensions": [
        (1, "x", "required", "uint32"),
        (2, "y", "required", "uint32"),
        (3, "z", "required", "uint32"),
    ],
    "Rule": [
        (1, "identifier", "required", "bytes"),
        (2, "name", "optional", "bytes"),
        (3, "body", "optional", "RuleBody"),
        (4, "section", "optional", "bytes"),
        (5, "field_5", "repeated", "bytes"),
    ],
    "RuleBody": [(1, "items", "repeated", "RuleItem"), (2, "field_2", "repeated", "bytes")],
    "RuleItem": [
        (1, "message", "optional", "RuleMessage"),
        (8, "focus", "repeated", "FocusMetric"),
        (9, "tables", "repeated", "RuleTable"),
        (10, "speedup", "optional", "Speedup"),
    ],
    # Tables and section bodies are not used; that they parse tells them from others with a damaged tag.
    "RuleTable": [(1, "title", "required", "bytes"), (3, "metric", "repeated", "bytes")],
    "SectionBody": [(1, "section", "required", "SectionName"), (2, "name", "optional", "bytes")],
    "SectionName": [(1, "name", "required", "bytes")],
    "RuleMessage": [
        (1, "text", "optional", "bytes"),
        (2, "kind", "optional", "uint32"),
        (3, "field_3", "optional", "uint64"),
        (4, "title", "optional", "bytes"),
    ],
    "FocusMetric": [
        (1, "field_1", "optional", "uint64"),
        (2, "name", "required", "bytes"),
        (3, "value", "optional", "double"),
        (4, "severity", "optional", "uint32"),
        (5, "info", "optional", "bytes"),
    ],
    "Speedup": [(1, "kind", "optional", "uint32"), (2, "percent", "required", "double")],
    "Nvtx": [
        (1, "domains", "repeated", "NvtxDomain"),
        (2, "threads", "repeated", "NvtxThread"),
        (3, "field_3", "repeated", "bytes"),
        (4, "field_4", "optional", "uint64"),
        (5, "field_5", "optional", "uint64"),
    ],
    "NvtxDomain": [(1, "id", "required", "uint64"), (2, "name", "optional", "bytes")],
    "NvtxThread": [(1, "thread", "required", "uint64"), (2, "states", "repeated", "NvtxState")],
    "NvtxState": [(1, "domain", "required", "uint64"), (3, "ranges", "repeated", "NvtxRange")],
    "NvtxRange": [(1, "text", "optional", "bytes"), (3, "field_3", "optional", "uint64")],
}

EXTENSIBLE = {
    "Session", "RuleItem", "RuleMessage", "RuleTable", "SectionBody", "Nvtx", "NvtxState", "NvtxRange",
}  # fmt: skip
"""Messages in which any unknown field is accepted; elsewhere only numbers above the known ones."""

LATEST = 2**33
"""Times in seconds since 1970 beyond this (the year 2242) are damage."""


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="gpuatlas/report.proto", package="gpuatlas.report", syntax="proto2"
    )
    for message, fields in _FIELDS.items():
        entry = file.message_type.add(name=message)
        for number, name, label, kind in fields:
            field = entry.field.add(name=name, number=number, label=_LABELS[label])
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type = _KINDS.TYPE_MESSAGE
                field.type_name = f".gpuatlas.report.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"gpuatlas.report.{name}"))
        for name in _FIELDS
    }


_CLASSES = _build()
FileHeader = _CLASSES["FileHeader"]
BlockHeader = _CLASSES["BlockHeader"]
StringTable = _CLASSES["StringTable"]
Session = _CLASSES["Session"]
Result = _CLASSES["Result"]
Rule = _CLASSES["Rule"]
Nvtx = _CLASSES["Nvtx"]
