"""The records of Kafka's internal topics, as data and as Kafka's dump tool prints them.

    topic                  data                     text of key and payload
    __consumer_offsets     coordinator_record       offsets
    __transaction_state    coordinator_record       transactions
    __share_group_state    coordinator_record       share_group_state
    __cluster_metadata     metadata_record          cluster_metadata
    __remote_log_metadata  remote_log_record        remote_log_metadata

A record that cannot be decoded, or has too many elements (RECORD_ELEMENTS), is `Undecodable`: a reason, which is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from klog.base.errors import KlogError
from klog.formats.structs.json import EmbeddedStruct, to_json
from klog.formats.structs.read import RECORD_ELEMENTS, Reader, StructError, TooManyElementsError, struct_reader
from klog.formats.structs.schema import Data, Schema, load, names_by_key

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"
REMOTE_LOG_METADATA: Final = "__remote_log_metadata"

COORDINATORS: Final = {CONSUMER_OFFSETS: "coordinator", TRANSACTION_STATE: "transaction", SHARE_GROUP_STATE: "share"}
"""The files of the schemas by topic: key and value begin with a version, which in the key is the record type."""
FRAMED: Final = {CLUSTER_METADATA: "metadata", REMOTE_LOG_METADATA: "remote_log"}  # the same, by `FRAME`
FRAME: Final = ("frame_version", "type", "version")  # unsigned varints in front of a metadata record
FRAME_VERSION: Final = 1
GROUP_METADATA: Final = 2
"""The record type of a classic group; a consumer's members have structs of `EMBEDDED` in fields of these names."""
EMBEDDED: Final = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
PREFIX_BYTES: Final = 2  # of the version at the beginning of a key, a value or an embedded struct


class MissingKeyError(KlogError):
    """A record without the key that the decoder needs: Kafka's dump tool ends here.  The text is its exception's."""


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic.

    *type* is the record type, *name* its schema's name without "Key".  *version* and *value* are None in a tombstone.
    Group metadata of consumers has its members' `subscription` and `assignment` decoded (`Embedded`) if possible.
    """

    type: int
    name: str
    key: Data
    version: int | None
    value: Data | None


class MetadataRecord(NamedTuple):
    """A record of the cluster's metadata or of remote log metadata; *name* as in Kafka: `TOPIC_RECORD`."""

    type: int
    name: str
    version: int
    data: Data


class Undecodable(NamedTuple):
    """Why a record cannot be decoded: the message of Kafka's exception, None if it has none.

    *unknown_type* is set when the only reason is that this Kafka does not know the record type; *is_too_large* when the
    record has more elements than klog creates for one record, although a broker might.
    """

    message: str | None
    unknown_type: int | None = None
    is_too_large: bool = False


_TOO_LARGE: Final = Undecodable(f"it has more than {RECORD_ELEMENTS} elements", is_too_large=True)
_NULL: Final = Undecodable(
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of'
    ' "org.apache.kafka.common.record.internal.Record.value()" is null'
)


class TooLargeRecordError(KlogError):
    """A record has more elements than klog makes of one."""


# ---------------------------------------------------------------- coordinators


@cache
def coordinator_schemas(topic: str, record_type: int) -> tuple[str, Schema, Schema] | None:
    """Return name, key and value schema of a record type, None when Kafka does not know it."""
    names = names_by_key(COORDINATORS[topic]).get(record_type)
    if names is None:
        return None
    key, value = sorted(names)  # …Key, …Value
    return key.removesuffix("Key"), load(COORDINATORS[topic], key), load(COORDINATORS[topic], value)


def coordinator_record(topic: str, key: bytes, value: bytes | None) -> CoordinatorRecord | Undecodable:
    """Return the record of *topic* (one of the three coordinators' topics); *value* None is a tombstone.

    Kafka: CoordinatorRecordSerde.deserialize.
    """
    if len(key) < PREFIX_BYTES:
        return Undecodable("Could not read version from key's buffer.")
    record_type = int.from_bytes(key[:PREFIX_BYTES], "big", signed=True)
    schemas = coordinator_schemas(topic, record_type)
    if schemas is None:
        return Undecodable(f"Found an unknown record type {record_type}", record_type)
    name, key_schema, value_schema = schemas
    elements = _Elements()
    key_data = _struct(key_schema, key, record_type, "key", elements)
    if isinstance(key_data, Undecodable):
        return key_data
    if value is None:
        return CoordinatorRecord(record_type, name, key_data, None, None)
    if len(value) < PREFIX_BYTES:
        return Undecodable("Could not read version from value's buffer.")
    version = int.from_bytes(value[:PREFIX_BYTES], "big", signed=True)
    if not value_schema.lowest <= version <= value_schema.highest:
        return Undecodable(f"Found an unknown record version {version} for {record_type} type")
    value_data = _struct(value_schema, value, version, "value", elements)
    if isinstance(value_data, Undecodable):
        return value_data
    if topic == CONSUMER_OFFSETS and record_type == GROUP_METADATA and value_data["protocolType"] == "consumer":
        try:
            for member in value_data["members"]:
                for field, schema_name in EMBEDDED.items():
                    member[field] = _embedded(schema_name, member[field], elements)
        except TooManyElementsError:
            return _TOO_LARGE
    return CoordinatorRecord(record_type, name, key_data, version, value_data)


class _Elements:
    """The number of elements that a record may still have; embedded structs count, too."""

    def __init__(self) -> None:
        self._left = RECORD_ELEMENTS

    def decode(self, schema: Schema, data: bytes, version: int) -> Data:
        """Return the struct behind the version at the beginning of *data*; bytes left over do not disturb Kafka."""
        reader = Reader(data, version, PREFIX_BYTES, self._left)
        value: Data = struct_reader(schema, version)(reader)
        self._left = reader.elements
        return value


def _struct(schema: Schema, data: bytes, version: int, part: str, elements: _Elements) -> Data | Undecodable:
    try:
        return elements.decode(schema, data, version)
    except TooManyElementsError:
        return _TOO_LARGE
    except StructError as error:
        message = "null" if error.message is None else error.message
        return Undecodable(f"Could not read record with version {version} from {part}'s buffer due to: {message}.")


def _embedded(name: str, data: bytes, elements: _Elements) -> EmbeddedStruct | bytes:
    """Return the struct that a consumer wrote into its group's metadata; the bytes if they are anything else.

    Raises TooManyElementsError.  Kafka: DumpLogSegments.replaceField.
    """
    if len(data) < PREFIX_BYTES:
        return data
    schema, version = load("consumer_protocol", name), int.from_bytes(data[:PREFIX_BYTES], "big", signed=True)
    try:
        return EmbeddedStruct(schema, version, elements.decode(schema, data, version))
    except TooManyElementsError:
        raise
    except StructError:
        return data


def _coordinator_text(topic: str, key: bytes | None, value: bytes | None, offset: int) -> tuple[str, str | None]:
    if key is None:
        raise MissingKeyError(
            f"Failed to decode message at offset {offset} using the specified decoder (message had a missing key)"
        )
    record = coordinator_record(topic, key, value)
    if isinstance(record, Undecodable):
        _refuse_large(record)
        if record.unknown_type is not None:
            return f"Unknown record type {record.unknown_type} at offset {offset}, skipping.", None
        return f"Error at offset {offset}, skipping. {record.message}", None
    schemas = coordinator_schemas(topic, record.type)
    assert schemas is not None
    _, key_schema, value_schema = schemas
    key_text = f'{{"type":"{record.type}","data":{to_json(key_schema, record.key, 0)}}}'
    if record.version is None or record.value is None:
        return key_text, "<DELETE>"
    return key_text, f'{{"version":"{record.version}","data":{to_json(value_schema, record.value, record.version)}}}'


def _refuse_large(record: Undecodable) -> None:
    """Raise TooLargeRecordError for a record that Kafka's tool might print, if it has the memory."""
    if record.is_too_large:
        raise TooLargeRecordError(record.message)


def offsets(key: bytes | None, value: bytes | None, offset: int) -> tuple[str | None, str | None]:
    """Return the text of key and payload of a record of `__consumer_offsets`; None: the tool prints none.

    Raises MissingKeyError when *key* is None.  Kafka: DumpLogSegments.OffsetsMessageParser.
    """
    return _coordinator_text(CONSUMER_OFFSETS, key, value, offset)


def transactions(key: bytes | None, value: bytes | None, offset: int) -> tuple[str | None, str | None]:
    """Return the text of key and payload of a record of `__transaction_state`; None: the tool prints none.

    Raises MissingKeyError when *key* is None.  Kafka: DumpLogSegments.TransactionLogMessageParser.
    """
    return _coordinator_text(TRANSACTION_STATE, key, value, offset)


def share_group_state(key: bytes | None, value: bytes | None, offset: int) -> tuple[str | None, str | None]:
    """Return the text of key and payload of a record of `__share_group_state`; None: the tool prints none.

    Raises MissingKeyError when *key* is None.  Kafka: DumpLogSegments.ShareGroupStateMessageParser.
    """
    return _coordinator_text(SHARE_GROUP_STATE, key, value, offset)


# ---------------------------------------------------------------- metadata


class _UnknownTypeError(StructError):
    """No record has the number *type*."""

    def __init__(self, record_type: int) -> None:
        unknown = "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id"
        parsing = _parse_error(f"{unknown} {record_type}")
        super().__init__(parsing.java_class, parsing.message)
        self.type = record_type


def _parse_error(message: str) -> StructError:
    return StructError("org.apache.kafka.server.common.serialization.MetadataParseException", message)


def _frame_number(reader: Reader, entity: str) -> int:
    """Return one of the three numbers in front of a metadata record, cut to 16 bits as Kafka does."""
    try:
        number = reader.unsigned_varint()
    except StructError:
        raise _parse_error(f"Error while reading {entity}") from None
    if number > 32767:
        raise _parse_error(f"Value for {entity} was too large.")
    return (number + 32768) % 65536 - 32768


def _framed(file: str, value: bytes) -> MetadataRecord:
    """Kafka: AbstractApiMessageSerde.read."""
    reader = Reader(value, elements=RECORD_ELEMENTS)
    frame = _frame_number(reader, "frame version")
    if frame == 0:
        raise _parse_error(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release of"
            " KRaft in 2.8 to newer versions are not supported."
        )
    if frame != FRAME_VERSION:
        raise _parse_error(
            f"Could not deserialize metadata record due to unknown frame version {frame}"
            f"(only frame version {FRAME_VERSION} is supported)"
        )
    record_type, version = _frame_number(reader, "type"), _frame_number(reader, "version")
    names = names_by_key(file).get(record_type)
    if names is None:
        raise _UnknownTypeError(record_type)
    try:
        reader.version = version
        data = struct_reader(load(file, names[0]), version)(reader)
    except TooManyElementsError:
        raise
    except StructError:
        raise _parse_error(f"Failed to deserialize record with type {record_type}") from None
    if reader.remaining:
        raise _parse_error(f"Found {reader.remaining} byte(s) of garbage after {record_type}")
    return MetadataRecord(record_type, _constant_name(names[0]), version, data)


@cache
def _constant_name(name: str) -> str:
    """TopicRecord: TOPIC_RECORD."""
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name).removeprefix("_")


@cache
def newest_version(record_type: int) -> int:
    """Return the newest version of a type of metadata record that Kafka knows."""
    return load("metadata", names_by_key("metadata")[record_type][0]).highest


def metadata_record(value: bytes | None) -> MetadataRecord | Undecodable:
    """Return a record of `__cluster_metadata`.  Kafka: MetadataRecordSerde."""
    if value is None:
        return Undecodable("Error while reading frame version")
    try:
        return _framed("metadata", value)
    except TooManyElementsError:
        return _TOO_LARGE
    except StructError as error:
        return Undecodable(error.message, error.type if isinstance(error, _UnknownTypeError) else None)


def metadata_value(record: MetadataRecord, file: str = "metadata") -> bytes:
    """Return *record* as a reader of *file*'s schemas finds it, without tagged fields that no schema knows.

    Raises ValueError for null in a field that is not nullable.  Kafka: AbstractApiMessageSerde.write.
    """
    from klog.formats.structs.write import Writer, put_unsigned_varint, write

    (name,) = names_by_key(file)[record.type]
    writer = Writer()
    for number in (FRAME_VERSION, record.type, record.version):
        put_unsigned_varint(writer.tail, number)
    write(load(file, name), record.data, record.version, writer)
    return bytes(writer.tail)


def new_metadata_record(name: str, version: int, data: Data) -> MetadataRecord:
    """Return a record of `__cluster_metadata` by the name of its schema, `TopicRecord`.  Raises KeyError."""
    schema = load("metadata", name)
    assert schema.key is not None
    return MetadataRecord(schema.key, _constant_name(name), version, data)


def cluster_metadata(_key: bytes | None, value: bytes | None, offset: int) -> tuple[str | None, str | None]:
    """Return the text of key (always None) and payload.  Kafka: DumpLogSegments.ClusterMetadataLogMessageParser."""
    record = metadata_record(value)
    if isinstance(record, Undecodable):
        _refuse_large(record)
        return None, f"Error at {offset}, skipping. {record.message}"
    (name,) = names_by_key("metadata")[record.type]
    data = to_json(load("metadata", name), record.data, record.version)
    return None, f'{{"type":"{record.name}","version":{record.version},"data":{data}}}'


def remote_log_record(value: bytes | None) -> MetadataRecord | Undecodable:
    """Return a record of `__remote_log_metadata`.  Kafka: RemoteLogMetadataSerde, without its own checks."""
    if value is None:
        return _NULL
    try:
        return _framed("remote_log", value)
    except TooManyElementsError:
        return _TOO_LARGE
    except StructError as error:
        return Undecodable(error.message)


def remote_log_metadata(_key: bytes | None, value: bytes | None, offset: int) -> tuple[str | None, str | None]:
    """Return the text of key (always None) and payload.  Kafka: DumpLogSegments.RemoteMetadataLogMessageParser."""
    from klog.formats.remote_log import remote_log_text

    record = remote_log_record(value)
    try:
        if not isinstance(record, Undecodable):
            return None, remote_log_text(record.type, record.data)
        _refuse_large(record)
        message = record.message
    except StructError as error:
        message = error.message
    return None, f"Error at offset {offset}, skipping. {'null' if message is None else message}"


TextOf: TypeAlias = Callable[["bytes | None", "bytes | None", int], "tuple[str | None, str | None]"]
"""Key, value, offset of a record → the tool's text after ` key: ` and after ` payload: `; None: not that part."""

DECODERS: Final[Mapping[str, TextOf]] = {
    CONSUMER_OFFSETS: offsets,
    TRANSACTION_STATE: transactions,
    CLUSTER_METADATA: cluster_metadata,
    SHARE_GROUP_STATE: share_group_state,
    REMOTE_LOG_METADATA: remote_log_metadata,
}
"""The decoders by topic."""


def unreadable_value(decoder: TextOf, key: bytes | None, offset: int, message: str) -> tuple[str | None, str | None]:
    """Return the tool's output for a record whose value cannot even be extracted from its message.

    Raises MissingKeyError as *decoder* would.
    """
    if decoder is cluster_metadata:
        return None, f"Error at {offset}, skipping. {message}"
    text = f"Error at offset {offset}, skipping. {message}"
    if decoder is remote_log_metadata:
        return None, text
    if key is None:
        decoder(key, None, offset)
    return text, None
