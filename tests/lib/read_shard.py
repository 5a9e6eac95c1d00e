"""Reads a shard with what a user has: Python's safetensors where it is installed, and in any case a
strict reader of the format that shares nothing with ours. Prints one line a tensor:
name dtype shape and the values' bits. Exit status 3: the two readers differ."""
import json
import struct
import sys


def strict(path):
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    assert 8 + size <= len(data), "header beyond the file"

    def no_duplicates(pairs):
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), "duplicate keys"
        return dict(pairs)

    header = json.loads(data[8 : 8 + size].decode("utf-8"), object_pairs_hook=no_duplicates)
    assert data[8:9] == b"{", "no object first"
    metadata = header.pop("__metadata__")
    assert all(isinstance(value, str) for value in metadata.values()), "metadata are texts"
    assert size % 8 == 0, "tensors are not aligned"
    tensors, at = {}, 0
    for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, end = about["data_offsets"]
        count = 1
        for extent in about["shape"]:
            count *= extent
        assert first == at and end - first == 8 * count, "not contiguous"
        assert about["dtype"] in ("F64", "I64"), "another type"
        tensors[name] = (about["dtype"], about["shape"], data[8 + size + first : 8 + size + end])
        at = end
    assert 8 + size + at == len(data), "bytes behind the last tensor"
    return metadata, tensors


def library(path):
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        tensors = {}
        for name in file.keys():
            array = file.get_tensor(name)
            kind = {"float64": "F64", "int64": "I64"}[str(array.dtype)]
            tensors[name] = (kind, list(array.shape), array.astype(array.dtype).tobytes())
    return metadata, tensors


metadata, tensors = strict(sys.argv[1])
try:
    import numpy  # noqa: F401
    import safetensors  # noqa: F401

    if library(sys.argv[1]) != (metadata, tensors):
        sys.exit(3)
    print("read by safetensors", safetensors.__version__)
except ImportError as absent:
    print("skipped: safetensors itself (%s)" % absent)
for name, (kind, shape, data) in sorted(tensors.items()):
    print(name, kind, shape[0], data.hex())
for name in sorted(metadata):
    print(name, "=", metadata[name])
