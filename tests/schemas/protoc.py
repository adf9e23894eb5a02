"""The reference compiler, from the package grpcio-tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool


def protoc(folder: Path, **texts: str) -> dict[str, Any]:
    """Return the descriptors that protoc makes of all *texts*, by name without `.proto`."""
    files = {file.name.removesuffix(".proto"): file for file in descriptor_set(folder, texts).file}
    return {name: files[name] for name in texts}


def protoc_pool(folder: Path, **texts: str) -> Any:
    """Return a pool of what protoc makes of all *texts*, and of what they import."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_set(folder, texts, "--include_imports").file:
        pool.Add(file)
    return pool


def descriptor_set(folder: Path, texts: dict[str, str], *options: str) -> Any:
    """Compile *texts* in *folder*."""
    from grpc_tools import protoc as compiler

    for name, text in texts.items():
        (folder / f"{name}.proto").write_text(text, encoding="utf-8")
    out, include = folder / "out.bin", Path(compiler.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{folder}", f"-I{include}", f"--descriptor_set_out={out}", *options]
    assert compiler.main([*arguments, *(f"{name}.proto" for name in texts)]) == 0, texts
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
