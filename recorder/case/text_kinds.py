"""Kinds of texts in records, by what a copy without names may say of them.

A record's field has the kind as its type.  A plain ``str`` is left out of such a copy, so
that a new field tells nothing until somebody has thought about it.  See
:mod:`hanglab.recorder.archive.record_redaction`.
"""

from __future__ import annotations

from typing import Annotated

Public = Annotated[str, "words of the recorder, the kernel or torch, never of the job"]
CodeFile = Annotated[str, "path of a file of code"]
FunctionName = Annotated[str, "name of a function of the record's `file`"]
SectionName = Annotated[str, "name of a section"]
ThreadName = Annotated[str, "name of a thread or of a program"]
GroupName = Annotated[str, "name or description of a process group"]
HostName = Annotated[str, "name of a host"]
DataPath = Annotated[str, "path of anything but code"]
Endpoint = Annotated[str, "address:port"]
IpAddress = Annotated[str, "address without port"]
Setting = Annotated[str, "value that can be compared with others of its kind"]
Message = Annotated[str, "free text"]
ExceptionType = Annotated[str, "name of an exception's class"]
RaisedText = Annotated[str, "`type: message` of an exception"]
KernelRelease = Annotated[str, "release of the kernel"]
