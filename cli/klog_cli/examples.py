"""Examples of each command, for its help: what it does, and the line to type.  A test runs them over `fixtures/`."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "doctor": (
        ("whether the broker of this log dir will start, and what it loses", "klog doctor /data"),
        ("a ZooKeeper-era broker", "klog doctor /data --kafka-version 2.8"),
    ),
    "verify": (
        ("check headers, checksums, indexes and checkpoints of every partition", "klog verify /data"),
        ("decompress and read every record of one topic, too", "klog verify /data -t orders --deep"),
        ("findings for a script, one per line", "klog verify /data -o jsonl"),
    ),
    "recover": (
        ("show the changes and the losses", "klog recover /data"),
        ("do it; 'klog undo' undoes it", "klog recover /data --apply"),
        ("only rebuild index files", "klog recover /data --indexes-only"),
    ),
    "apply": (("carry out a plan that was saved", "klog apply plan.json"),),
    "undo": (
        ("show what the latest change would restore", "klog undo latest"),
        ("restore it", "klog undo latest --apply"),
    ),
    "plans": (("the changes that were made here, and whether they can be undone", "klog plans /data"),),
    "completion": (("complete in this bash", "klog completion bash > klog.bash && source klog.bash"),),
    "explain": (
        ("the meaning of a finding, and its remedy", "klog explain bad-crc"),
        ("every id of findings, one per line, for a script", "klog explain -o jsonl"),
    ),
    "browse": (
        ("walk through a log dir on the screen", "klog browse /data"),
        ("the copies of three brokers; r shows how they differ", "klog browse /b1 /b2 /b3"),
    ),
    "describe": (
        ("the partitions of a log dir", "klog describe /data"),
        ("the segments of a partition", "klog describe /data/orders-0"),
    ),
    "records": (
        ("the last ten records of a partition", "klog records /data/orders-0"),
        ("three of a topic by key, with JSON indented", "klog records /data -t orders --key key-1 -n 3 --pretty"),
        ("offset and value of the first five", "klog records /data/orders-0 --head -n 5 --format '%o %v\\n'"),
    ),
    "dump": (
        ("the batches of a partition, as Kafka's dump tool prints them", "klog dump /data/orders-0"),
        ("the last ten records as JSON lines", "klog dump /data/orders-0 --from-offset -10 -o jsonl"),
        ("all records of a topic into a file", "klog dump /data -t orders --to orders.csv"),
    ),
    "lookup": (
        ("the place of offset 5, step by step", "klog lookup /data/orders-0 --offset 5"),
        ("the first record at or after a time", "klog lookup /data/orders-0 --timestamp 2025-06-15T15:06:40Z"),
    ),
    "search": (
        ("the records with a key", "klog search /data -t orders --key key-1"),
        ("the first three records whose value matches", "klog search /data --regex amount -n 3"),
    ),
    "stats": (("records, bytes and keys of each partition", "klog stats /data"),),
    "timeline": (
        ("all events, in order", "klog timeline /data"),
        ("the first twenty events of a topic", "klog timeline /data -t orders -n 20"),
    ),
    "groups": (
        ("members, offsets and lag of all groups", "klog groups /data"),
        ("offsets as a file for kafka-consumer-groups", "klog groups /data -o reset-offsets --to offsets.csv"),
    ),
    "transactions": (
        ("every transaction, and the hanging ones", "klog transactions /data"),
        ("only those that are still open", "klog transactions /data --state open"),
    ),
    "metadata show": (("the cluster as this node's metadata log has it", "klog metadata show /data"),),
    "metadata history": (("the leaders of a partition, and its ISR", "klog metadata history /data -p orders-0"),),
    "metadata compare": (("which of three nodes has the newest metadata log", "klog metadata compare /b1 /b2 /b3"),),
    "metadata plan": (
        ("the voters have new addresses", "klog metadata plan /b1 /b2 /b3 --voters 1@h1:9093,2@h2:9093,3@h3:9093"),
    ),
    "fetch": (("the batches that a consumer would receive from offset 0 on", "klog fetch /data/orders-0 --offset 0"),),
    "bytes": (
        ("the batch with offset 5, field by field", "klog bytes /data/orders-0 --offset 5"),
        ("every field of a file, for a script", "klog bytes /data/recovery-point-offset-checkpoint -o json"),
        ("the bytes themselves, into a file", "klog bytes /data/orders-0 --offset 5 --raw --to batch.bin"),
    ),
    "report": (("one page about a log dir, for the ticket", "klog report /data --to report.html"),),
    "space": (
        ("what uses the disk, and why", "klog space /data"),
        ("how to free 100 KiB without losing anything", "klog space /data --free 100KiB"),
    ),
    "compact": (
        ("the space that compaction would free", "klog compact /data --estimate"),
        ("show what would change", "klog compact /data"),
    ),
    "truncate": (("show the records that a truncation removes", "klog truncate /data/orders-0 --to-offset 20"),),
    "replicas diff": (("how the copies of three brokers differ", "klog replicas diff /b1 /b2 /b3"),),
    "replicas plan": (("complete copies that lack records", "klog replicas plan /b1 /b2 /b3"),),
    "replicas rescue": (
        (
            "save the records that would be lost if node 1 led",
            "klog replicas rescue /b1 /b2 /b3 --if-leads 1 --to lost.jsonl",
        ),
    ),
    "replicas simulate": (("simulate a scenario step by step", "klog replicas simulate events.json"),),
    "remote ls": (
        ("which offsets of each partition are in remote storage", "klog remote ls /data"),
        ("whether the objects are there, segment by segment", "klog remote ls /data --remote /tier --segments"),
        ("the content of a bucket whose cluster is gone", "klog remote ls --remote /tier"),
    ),
    "remote verify": (
        ("every object of each segment against the metadata", "klog remote verify /data --remote /tier"),
        ("only names and sizes", "klog remote verify /data --remote /tier --quick"),
    ),
    "remote fetch": (
        ("both tiers as one local log dir", "klog remote fetch /data --remote /tier --to /back"),
        (
            "out of a bucket whose cluster is gone, from an offset on",
            "klog remote fetch --remote /tier --from-offset 1000 --to /part",
        ),
    ),
    "remote orphans": (
        ("objects that no broker will ever delete", "klog remote orphans /data --remote /tier"),
        ("their keys, one a line, for the tool that deletes", "klog remote orphans /data --remote /tier -o keys"),
    ),
    "remote attach": (
        (
            "show how a bucket whose cluster is gone is attached to a new cluster",
            "klog remote attach --remote /tier --to /data",
        ),
    ),
    "adopt": (("show how a partition of another disk is restored", "klog adopt /old/orders-0 --to /data"),),
    "schemas list": (
        ("the schemas that a lost registry had", "klog schemas list /data"),
        ("deleted ones too, as far as compaction has left them", "klog schemas list /data --deleted"),
    ),
    "schemas check": (("which values do not decode, and which schemas are lost", "klog schemas check /data"),),
    "schemas export": (
        ("the records of a new _schemas", "klog schemas export /data --to schemas.jsonl"),
        ("the requests that a registry takes in mode IMPORT", "klog schemas export /data --output requests --to -"),
        ("a folder of schema files", "klog schemas export /data --output files --to schemas"),
    ),
    "schemas show": (
        ("the schema that the values of id 20 were written with", "klog schemas show /data --id 20"),
        ("with the schemas that it refers to", "klog schemas show /data --subject orders-value --resolved"),
    ),
    "keys check": (("keys in another partition than their partitioner chose", "klog keys check /data"),),
    "partition": (("the partition of a key, of 12, by each partitioner", "klog partition customer-7 --partitions 12"),),
    "assign": (
        (
            "the brokers that a new topic would get",
            "klog assign --brokers 1,2,3 --partitions 6 --replication 2 --seed 1",
        ),
    ),
    "audit headers": (("every check of batch headers", "klog audit headers /data"),),
    "audit misrouted": (("batches that a producer put into the wrong partition", "klog audit misrouted /data"),),
    "serve": (("a read-only broker over this log dir, for any Kafka client", "klog serve /data"),),
    "export": (("all records as Parquet files", "klog export /data --to rows"),),
    "write": (("records of a file into a new log dir", "klog write orders.jsonl --to new"),),
    "follow": (("copy the partitions of a live cluster", "klog follow localhost:9092 --to copy"),),
    "spark verify": (("check many log dirs, a task for each part", "klog spark verify /data"),),
    "spark audit": (("misrouted batches of many log dirs", "klog spark audit /data"),),
    "spark stats": (("count the records of many log dirs", "klog spark stats /data"),),
    "spark search": (("find a key in many log dirs", "klog spark search /data --key key-1"),),
    "spark export": (("all records as Parquet files", "klog spark export /data --to rows"),),
    "spark compact": (("the last value of each key as a table", "klog spark compact /data --to table"),),
}
