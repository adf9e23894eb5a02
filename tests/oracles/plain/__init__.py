"""A second opinion: Kafka's formats written and read slowly and plainly, sharing no line with klog.

`encode` writes every shape a broker, a client or a cleaner can leave on disk, and shapes that none of them would;
`decode` reads them back by the rules of Kafka's own readers; `json_lines` renders what `klog dump --output jsonl`
promises.  A test fails if klog and this package disagree, and one of the two is wrong.
"""
