# fish completion for klog.  Made by `make completions` from the command line itself: change that, not this.

function __klog_command --description 'The command whose arguments are being written'
    set -l command
    for word in (commandline -opc)[2..-1]
        switch "$command $word"
            case ' describe' ' dump' ' lookup' ' verify'
                set command $command $word
        end
    end
    echo "$command"
end

complete -c klog -f
complete -c klog -n 'test (__klog_command) = ""' -a describe -d 'Show what is there: a log dir\'s partitions, a partition\'s segments, a file\'s header facts'
complete -c klog -n 'test (__klog_command) = ""' -a dump -d 'Show the content of any Kafka file: in the text of Kafka\'s own dump tool, or as data'
complete -c klog -n 'test (__klog_command) = ""' -a lookup -d 'Find an offset or a time as a broker does, and show how: segment, index, scan, batch, record'
complete -c klog -n 'test (__klog_command) = ""' -a verify -d 'Check everything that can be wrong, changing nothing: every batch, index, snapshot, checkpoint and name'
complete -c klog -n 'test (__klog_command) = ""' -l version -d 'Show versions and leave'
complete -c klog -n 'test (__klog_command) = ""' -s h -l help -d 'Show this help and leave'
complete -c klog -n 'test (__klog_command) = "describe"' -F
complete -c klog -n 'test (__klog_command) = "describe"' -l topic -x -d 'Only these topics of a log dir (a name or a glob)'
complete -c klog -n 'test (__klog_command) = "describe"' -l partition -x -d 'Only these partition numbers of a log dir'
complete -c klog -n 'test (__klog_command) = "describe"' -l deep -d 'Decompress where only that tells how many records there are'
complete -c klog -n 'test (__klog_command) = "describe"' -l output -x -a 'text table json jsonl csv' -d 'How to show it'
complete -c klog -n 'test (__klog_command) = "describe"' -l quiet -d 'No notes, no bar'
complete -c klog -n 'test (__klog_command) = "describe"' -s h -l help -d 'Show this help and leave'
complete -c klog -n 'test (__klog_command) = "dump"' -F
complete -c klog -n 'test (__klog_command) = "dump"' -l files -x -d 'Files, separated by commas, as for Kafka\'s tool'
complete -c klog -n 'test (__klog_command) = "dump"' -l topic -x -d 'Only these topics of a log dir (a name or a glob)'
complete -c klog -n 'test (__klog_command) = "dump"' -l partition -x -d 'Only these partition numbers of a log dir'
complete -c klog -n 'test (__klog_command) = "dump"' -l output -x -a 'text jsonl csv parquet' -d 'How to show it'
complete -c klog -n 'test (__klog_command) = "dump"' -l to -r -F -d 'Write there instead of stdout'
complete -c klog -n 'test (__klog_command) = "dump"' -l deep-iteration -d 'Records, not only batches (text)'
complete -c klog -n 'test (__klog_command) = "dump"' -l print-data-log -d 'Records with keys and payloads (text)'
complete -c klog -n 'test (__klog_command) = "dump"' -l skip-record-metadata -d 'Record lines without metadata (text)'
complete -c klog -n 'test (__klog_command) = "dump"' -l verify-index-only -d 'Check indexes against the log, do not list them'
complete -c klog -n 'test (__klog_command) = "dump"' -l index-sanity-check -d 'Only the check that a broker makes'
complete -c klog -n 'test (__klog_command) = "dump"' -l max-bytes -x -d 'Look only at so many bytes of each log'
complete -c klog -n 'test (__klog_command) = "dump"' -l max-message-size -x -d 'How far to look behind an index entry'
complete -c klog -n 'test (__klog_command) = "dump"' -l offsets-decoder -d 'Decode __consumer_offsets'
complete -c klog -n 'test (__klog_command) = "dump"' -l transaction-log-decoder -d 'Decode __transaction_state'
complete -c klog -n 'test (__klog_command) = "dump"' -l cluster-metadata-decoder -d 'Decode __cluster_metadata'
complete -c klog -n 'test (__klog_command) = "dump"' -l remote-log-metadata-decoder -d 'Decode __remote_log_metadata'
complete -c klog -n 'test (__klog_command) = "dump"' -l share-group-state-decoder -d 'Decode __share_group_state'
complete -c klog -n 'test (__klog_command) = "dump"' -l with-indexes -d 'Of a directory, its indexes and snapshots too'
complete -c klog -n 'test (__klog_command) = "dump"' -l as -x -a 'log index timeindex txnindex snapshot' -d 'What a file is whose name does not tell'
complete -c klog -n 'test (__klog_command) = "dump"' -l from-offset -x -d 'From this offset on'
complete -c klog -n 'test (__klog_command) = "dump"' -l to-offset -x -d 'Up to, not including, this offset'
complete -c klog -n 'test (__klog_command) = "dump"' -l from-time -x -d 'From this time on (epoch ms, ISO 8601, \'2h ago\')'
complete -c klog -n 'test (__klog_command) = "dump"' -l to-time -x -d 'Up to, not including, this time'
complete -c klog -n 'test (__klog_command) = "dump"' -l key -x -d 'Only records with this key'
complete -c klog -n 'test (__klog_command) = "dump"' -l keys-from -r -F -d 'Only records with one of the keys in FILE, one a line'
complete -c klog -n 'test (__klog_command) = "dump"' -l limit -x -d 'At most so many records (batches with --batches)'
complete -c klog -n 'test (__klog_command) = "dump"' -l isolation -x -a 'read_uncommitted read_committed' -d 'read_committed: as such a consumer sees it'
complete -c klog -n 'test (__klog_command) = "dump"' -l tail -d 'Only the newest batches of each partition'
complete -c klog -n 'test (__klog_command) = "dump"' -l no-control -d 'Without control records'
complete -c klog -n 'test (__klog_command) = "dump"' -l batches -d 'A row a batch instead of a record'
complete -c klog -n 'test (__klog_command) = "dump"' -l values -x -a 'text base64 hex redacted none' -d 'How to show values (jsonl, csv)'
complete -c klog -n 'test (__klog_command) = "dump"' -l jobs -x -d 'Threads'
complete -c klog -n 'test (__klog_command) = "dump"' -l max-batch-bytes -x -d 'Largest batch to read into memory'
complete -c klog -n 'test (__klog_command) = "dump"' -l quiet -d 'No notes, no bar'
complete -c klog -n 'test (__klog_command) = "dump"' -s h -l help -d 'Show this help and leave'
complete -c klog -n 'test (__klog_command) = "lookup"' -F
complete -c klog -n 'test (__klog_command) = "lookup"' -l offset -x -d 'Where is this offset?'
complete -c klog -n 'test (__klog_command) = "lookup"' -l timestamp -x -d 'Which is the first record as late (epoch ms, ISO 8601, \'2h ago\')? With --batch, without a value: times'
complete -c klog -n 'test (__klog_command) = "lookup"' -l batch -r -F -d 'Look up each number in FILE, one a line'
complete -c klog -n 'test (__klog_command) = "lookup"' -l topic -x -d 'Only these topics of a log dir (a name or a glob)'
complete -c klog -n 'test (__klog_command) = "lookup"' -l partition -x -d 'Only these partition numbers of a log dir'
complete -c klog -n 'test (__klog_command) = "lookup"' -l position-only -d 'Print just the position of the batch'
complete -c klog -n 'test (__klog_command) = "lookup"' -l output -x -a 'text json jsonl' -d 'How to show it'
complete -c klog -n 'test (__klog_command) = "lookup"' -l quiet -d 'No notes, no bar'
complete -c klog -n 'test (__klog_command) = "lookup"' -s h -l help -d 'Show this help and leave'
complete -c klog -n 'test (__klog_command) = "verify"' -F
complete -c klog -n 'test (__klog_command) = "verify"' -l topic -x -d 'Only these topics of a log dir (a name or a glob)'
complete -c klog -n 'test (__klog_command) = "verify"' -l partition -x -d 'Only these partition numbers of a log dir'
complete -c klog -n 'test (__klog_command) = "verify"' -l deep -d 'Every record too, decompressed'
complete -c klog -n 'test (__klog_command) = "verify"' -l sample -x -d 'Only every Nth segment of each partition'
complete -c klog -n 'test (__klog_command) = "verify"' -l since -x -d 'Only segments changed since then (\'2h ago\', \'2h\')'
complete -c klog -n 'test (__klog_command) = "verify"' -l output -x -a 'text json jsonl table' -d 'How to show it'
complete -c klog -n 'test (__klog_command) = "verify"' -l jobs -x -d 'Threads'
complete -c klog -n 'test (__klog_command) = "verify"' -l max-batch-bytes -x -d 'Largest batch to read into memory'
complete -c klog -n 'test (__klog_command) = "verify"' -l quiet -d 'No notes, no bar'
complete -c klog -n 'test (__klog_command) = "verify"' -s h -l help -d 'Show this help and leave'
