"""Write klog's schemas of internal records and of requests from the message definitions inside Kafka's jars.

    python tools/make_schemas.py FOLDER_OF_JARS [core/klog/formats/structs/schemas]

The jars carry their definitions as JSON with comments (`common/**/*.json`, and `message/*.json` in the storage jar).
Each becomes one line in the notation of `klog.formats.structs.schema`.  The same jars always give the same files.  A
definition that uses something outside of the notation stops the run: nothing is left out silently.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from typing import Any, NamedTuple

# The requests of a client that reads, served or refused (`klog serve`).
APIS = (
    "ApiVersions|Metadata|DescribeCluster|ListOffsets|Fetch|OffsetForLeaderEpoch|FindCoordinator|JoinGroup|SyncGroup"
    "|Heartbeat|LeaveGroup|OffsetFetch|OffsetCommit|ListGroups|DescribeGroups|DescribeConfigs|DescribeLogDirs"
    "|DescribeAcls|SaslHandshake|SaslAuthenticate|Produce|InitProducerId|CreateTopics|DeleteTopics|CreatePartitions|DeleteRecords"
    "|IncrementalAlterConfigs|DeleteGroups|OffsetDelete"
)
# The definitions of each file: jar (without version), their "type", and a pattern for the name.
FILES = {
    "coordinator": ("kafka-group-coordinator", ("coordinator-key", "coordinator-value"), ""),
    "transaction": ("kafka-transaction-coordinator", ("coordinator-key", "coordinator-value"), ""),
    "share": ("kafka-share-coordinator", ("coordinator-key", "coordinator-value"), ""),
    "metadata": ("kafka-metadata", ("metadata",), ""),
    "remote_log": ("kafka-storage", ("metadata",), "Remote"),
    "control": ("kafka-clients", ("data",), "ControlRecordType|EndTxnMarker|LeaderChange|Snapshot|KRaftVersion|Voters"),
    "consumer_protocol": ("kafka-clients", ("data",), "ConsumerProtocol"),
    "wire": ("kafka-clients", ("request", "response", "header"), f"({APIS}|)(Request|Response)(Header)?$"),
}
HEADER = """\
# Written by tools/make_schemas.py from the message definitions of Apache Kafka {version}, Apache License 2.0.
# Do not edit.  The notation is explained in klog/formats/structs/schema.py.
"""
# The allowed members of a definition. The second row has no bearing on bytes or on the printed form.
KNOWN_MESSAGE = {"apiKey", "type", "name", "validVersions", "flexibleVersions", "fields", "commonStructs"} | {
    "latestVersionUnstable",
    "listeners",
}
KNOWN_FIELD = {"name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default", "fields"} | {
    "flexibleVersions",
    "about",
    "entityType",
    "ignorable",
    "mapKey",
    "zeroCopy",
}
HIGHEST = 32767


Spec = dict[str, Any]  # a part of a definition, as JSON gives it


class Range(NamedTuple):
    """Versions *lo* to *hi*, both included; lo > hi when there are none."""

    lo: int
    hi: int

    def within(self, known: Range) -> str:
        """Return the test for these versions where *known* is taken for granted; empty if none is needed."""
        lo = str(self.lo) if self.lo > known.lo else ""
        hi = str(self.hi) if self.hi < known.hi else ""
        if not lo and not hi:
            return ""
        if lo == hi:
            return lo
        return f"{lo}+" if not hi else f"{lo}-{hi}"


def versions(text: str) -> Range:
    if text == "none":
        return Range(1, 0)
    if text.endswith("+"):
        return Range(int(text[:-1]), HIGHEST)
    lo, _, hi = text.partition("-")
    return Range(int(lo), int(hi or lo))


def intersection(one: Range, other: Range) -> Range:
    return Range(max(one.lo, other.lo), min(one.hi, other.hi))


def lower_first(name: str) -> str:
    """Return *name* as Kafka's generated classes and its JSON spell it (KRaftVersion: kRaftVersion)."""
    return name[:1].lower() + name[1:]


def without_comments(text: str) -> str:
    return re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda found: found[1] or "", text)


class Definition:
    """One message definition, on its way to a line of text."""

    def __init__(self, text: str) -> None:
        self.spec: Spec = json.loads(without_comments(text))
        unknown = set(self.spec) - KNOWN_MESSAGE
        if unknown:
            raise SystemExit(f"{self.spec['name']}: what does {sorted(unknown)} mean?")
        self.common = {struct["name"]: struct for struct in self.spec.get("commonStructs", ())}

    @property
    def order(self) -> tuple[int, str]:
        return self.spec.get("apiKey", -1), self.spec["name"]

    def line(self) -> str:
        spec = self.spec
        valid = versions(spec["validVersions"])
        if spec.get("latestVersionUnstable"):  # a broker never offers it
            valid = Range(valid.lo, valid.hi - 1)
        key = f"[{spec['apiKey']}]" if "apiKey" in spec else ""
        flexible = spec["flexibleVersions"] if valid.lo <= valid.hi else "none"
        known = f"{valid.lo}-{valid.hi}" if valid.hi > valid.lo else str(valid.lo)
        fields = "; ".join(self.field(field, valid) for field in spec["fields"])
        return f"{spec['name']}{key} v{known} flex={flexible}: {fields}".rstrip()

    def field(self, spec: Spec, known: Range) -> str:
        unknown = set(spec) - KNOWN_FIELD
        if unknown:
            raise SystemExit(f"{self.spec['name']}.{spec['name']}: what does {sorted(unknown)} mean?")
        exists = versions(spec["versions"] if "versions" in spec else spec["taggedVersions"])
        text = f"{lower_first(spec['name'])}:{self.type(spec, exists, known)}"
        test = exists.within(known)
        if test:
            text += f" @{test}"
        if "nullableVersions" in spec:
            text += " ?" + versions(spec["nullableVersions"]).within(intersection(exists, known))
        if "tag" in spec:
            if versions(spec["taggedVersions"]) != exists:
                raise SystemExit(f"{self.spec['name']}.{spec['name']}: tagged in only some of its versions")
            text += f" #{spec['tag']}"
        if "flexibleVersions" in spec:
            if spec["flexibleVersions"] != "none":
                raise SystemExit(f"{self.spec['name']}.{spec['name']}: flexible in versions of its own")
            text += " ~"
        return text + self.default(spec)

    def type(self, spec: Spec, exists: Range, known: Range) -> str:
        name = str(spec["type"]).removeprefix("[]")
        brackets = str(spec["type"]).removesuffix(name)
        if name[0].islower():
            return brackets + name
        if name in self.common:
            struct = self.common[name]
            inside = versions(struct["versions"])
            refused = ""  # Kafka's classes for shared structs accept every version
        else:
            struct = spec
            inside = intersection(known, exists)
            # The class of a struct declared in place refuses versions that its message does not have.
            refused = known.within(exists) and "^" + known.within(exists)
        fields = "; ".join(self.field(field, inside) for field in struct["fields"])
        return f"{brackets}{name}{refused}{{{fields}}}"

    def default(self, spec: Spec) -> str:
        given = spec.get("default")
        if given is None:  # Kafka's generator treats a JSON null as an absent one: only the string "null" means null
            return ""
        if given == "null" and "nullableVersions" in spec:
            return " =null"
        if spec["type"] == "string":
            return f" ={json.dumps(given)}"
        if spec["type"] == "bool":
            return f" ={str(given).lower()}"
        return f" ={int(str(given), 0)}"


def definitions(folder: str, jar: str) -> tuple[str, list[Definition]]:
    """Return Kafka's version and the definitions inside *jar*."""
    found = [name for name in sorted(os.listdir(folder)) if re.fullmatch(re.escape(jar) + r"-\d[\w.]*\.jar", name)]
    if len(found) != 1:
        raise SystemExit(f"{folder}: wanted one {jar}-VERSION.jar, found {found}")
    with zipfile.ZipFile(os.path.join(folder, found[0])) as archive:
        names = sorted(name for name in archive.namelist() if re.match(r"(common|message)/.*\.json$", name))
        texts = [archive.read(name).decode("utf-8") for name in names]
    return found[0][len(jar) + 1 : -4], [Definition(text) for text in texts if '"fields"' in text]


def main(jars: str, target: str = "") -> None:
    target = target or os.path.join(os.path.dirname(__file__), "..", "core", "klog", "formats", "structs", "schemas")
    for file, (jar, kinds, pattern) in FILES.items():
        version, found = definitions(jars, jar)
        wanted = [one for one in found if one.spec["type"] in kinds and re.match(pattern, one.spec["name"])]
        wanted.sort(key=lambda one: one.order)
        with open(os.path.join(target, f"{file}.txt"), "w", encoding="utf-8", newline="\n") as out:
            out.write(HEADER.format(version=version))
            out.writelines(one.line() + "\n" for one in wanted)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
