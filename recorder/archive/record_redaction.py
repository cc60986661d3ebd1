"""Records without names: each text becomes what its field's kind allows."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from hanglab.recorder.archive.pseudonyms import Pseudonyms
from hanglab.recorder.archive.text_redaction import TextRedaction
from hanglab.recorder.case import text_kinds
from hanglab.recorder.case.records import Python

S = TypeVar("S")
#: Makes another value of one; the record that it is a field of tells what it belongs to.
Change = Callable[[Any, Any], Any]


class RecordRedaction:
    """Redacts records of any type, by the types of their fields."""

    def __init__(self, names: Pseudonyms, texts: TextRedaction) -> None:
        def same(value: object, _: object) -> object:
            return value

        self._changes: dict[Any, Change] = {
            int: same,
            float: same,
            bool: same,
            str: lambda text, _: "",
            Python: lambda python, _: names.python(python),
            text_kinds.Public: same,
            text_kinds.CodeFile: lambda text, _: names.file(text),
            text_kinds.FunctionName: lambda text, record: names.function(text, record.file),
            text_kinds.SectionName: lambda text, _: names.section(text),
            text_kinds.ThreadName: lambda text, _: names.thread(text),
            text_kinds.GroupName: lambda text, _: names.group(text),
            text_kinds.HostName: lambda text, _: names.host(text),
            text_kinds.DataPath: lambda text, _: names.path(text),
            text_kinds.Endpoint: lambda text, _: names.address(text),
            text_kinds.IpAddress: lambda text, _: names.address(f"{text}:0").rpartition(":")[0],
            text_kinds.Setting: lambda text, _: names.value(text),
            text_kinds.Message: lambda text, _: texts.phrase(text),
            text_kinds.ExceptionType: lambda text, _: texts.exception_type(text),
            text_kinds.RaisedText: lambda text, _: texts.raised(text),
            text_kinds.KernelRelease: lambda text, _: names.kernel(text),
        }

    def __call__(self, record: S) -> S:
        changed: S = self._change_of(type(record))(record, None)
        return changed

    def _change_of(self, type_: Any) -> Change:
        change = self._changes.get(type_)
        if change is None:
            change = self._changes[type_] = self._new_change(type_)
        return change

    def _new_change(self, type_: Any) -> Change:
        origin, arguments = get_origin(type_), get_args(type_)
        if origin in (Union, types.UnionType):
            (inner,) = (self._change_of(one) for one in arguments if one is not type(None))
            return lambda value, record: None if value is None else inner(value, record)
        if origin is list:
            if arguments[0] is str:
                return lambda values, record: []
            item = self._change_of(arguments[0])
            return lambda values, record: [item(value, record) for value in values]
        if origin is dict:
            key, value = map(self._change_of, arguments)
            return lambda rows, record: {key(k, record): value(v, record) for k, v in rows.items()}
        if origin is Literal:
            return lambda value, record: value
        return self._record_change(type_)

    def _record_change(self, type_: type[msgspec.Struct]) -> Change:
        changes = [
            (field.name, self._change_of(field.type)) for field in msgspec.structs.fields(type_)
        ]

        def change(record: Any, _: Any) -> Any:
            return type_(**{name: of(getattr(record, name), record) for name, of in changes})

        return change
