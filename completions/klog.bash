# bash completion for klog.  Made by `make completions` from the command line itself: change that, not this.

_klog() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= words= value= i
    # --output=json arrives as three words
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${command:+$command }${COMP_WORDS[i]}" in
            describe) command=describe ;;
            dump) command=dump ;;
            lookup) command=lookup ;;
            verify) command=verify ;;
            recover) command=recover ;;
            truncate) command=truncate ;;
            compact) command=compact ;;
            apply) command=apply ;;
            undo) command=undo ;;
            plans) command=plans ;;
            spark) command=spark ;;
            'spark verify') command='spark verify' ;;
            'spark stats') command='spark stats' ;;
            'spark search') command='spark search' ;;
            'spark export') command='spark export' ;;
            'spark compact') command='spark compact' ;;
        esac
    done
    value=1
    case "$command $prev" in
        'describe --topic') words='' ;;
        'describe --partition') words='' ;;
        'describe --output') words='text table json jsonl csv' ;;
        'dump --files') words='' ;;
        'dump --topic') words='' ;;
        'dump --partition') words='' ;;
        'dump --output') words='text jsonl csv parquet' ;;
        'dump --to') words='' ;;
        'dump --max-bytes') words='' ;;
        'dump --max-message-size') words='' ;;
        'dump --as') words='log index timeindex txnindex snapshot' ;;
        'dump --from-offset') words='' ;;
        'dump --to-offset') words='' ;;
        'dump --from-time') words='' ;;
        'dump --to-time') words='' ;;
        'dump --key') words='' ;;
        'dump --keys-from') words='' ;;
        'dump --limit') words='' ;;
        'dump --isolation') words='read_uncommitted read_committed' ;;
        'dump --values') words='text base64 hex redacted none' ;;
        'dump --jobs') words='' ;;
        'dump --max-batch-bytes') words='' ;;
        'lookup --offset') words='' ;;
        'lookup --timestamp') words='' ;;
        'lookup --batch') words='' ;;
        'lookup --topic') words='' ;;
        'lookup --partition') words='' ;;
        'lookup --output') words='text json jsonl' ;;
        'verify --topic') words='' ;;
        'verify --partition') words='' ;;
        'verify --sample') words='' ;;
        'verify --since') words='' ;;
        'verify --output') words='text json jsonl table' ;;
        'verify --jobs') words='' ;;
        'verify --max-batch-bytes') words='' ;;
        'recover --topic') words='' ;;
        'recover --partition') words='' ;;
        'recover --plan') words='' ;;
        'recover --backup') words='' ;;
        'recover --broker-epoch') words='none registered' ;;
        'recover --rescue-records') words='' ;;
        'recover --index-interval') words='' ;;
        'recover --segment-index-bytes') words='' ;;
        'recover --producer-expiration') words='' ;;
        'recover --now') words='' ;;
        'recover --output') words='text json' ;;
        'recover --jobs') words='' ;;
        'truncate --to-offset') words='' ;;
        'truncate --to-timestamp') words='' ;;
        'truncate --topic') words='' ;;
        'truncate --partition') words='' ;;
        'truncate --plan') words='' ;;
        'truncate --backup') words='' ;;
        'truncate --index-interval') words='' ;;
        'truncate --producer-expiration') words='' ;;
        'truncate --now') words='' ;;
        'truncate --output') words='text json' ;;
        'compact --topic') words='' ;;
        'compact --partition') words='' ;;
        'compact --plan') words='' ;;
        'compact --backup') words='' ;;
        'compact --to') words='' ;;
        'compact --policy') words='' ;;
        'compact --metadata') words='' ;;
        'compact --min-dirty-ratio') words='' ;;
        'compact --delete-retention') words='' ;;
        'compact --min-lag') words='' ;;
        'compact --segment-size') words='' ;;
        'compact --index-size') words='' ;;
        'compact --index-interval') words='' ;;
        'compact --map-memory') words='' ;;
        'compact --rules') words='' ;;
        'compact --producer-expiration') words='' ;;
        'compact --now') words='' ;;
        'compact --output') words='text json' ;;
        'compact --jobs') words='' ;;
        'apply --backup') words='' ;;
        'apply --output') words='text json' ;;
        'undo --backup') words='' ;;
        'undo --output') words='text json' ;;
        'plans --output') words='text table json' ;;
        'spark verify --topic') words='' ;;
        'spark verify --partition') words='' ;;
        'spark verify --output') words='text json jsonl table' ;;
        'spark verify --max-batch-bytes') words='' ;;
        'spark verify --master') words='' ;;
        'spark verify --conf') words='' ;;
        'spark verify --ship') words='' ;;
        'spark stats --topic') words='' ;;
        'spark stats --partition') words='' ;;
        'spark stats --output') words='text table json jsonl' ;;
        'spark stats --max-batch-bytes') words='' ;;
        'spark stats --master') words='' ;;
        'spark stats --conf') words='' ;;
        'spark stats --ship') words='' ;;
        'spark search --topic') words='' ;;
        'spark search --partition') words='' ;;
        'spark search --key') words='' ;;
        'spark search --keys-from') words='' ;;
        'spark search --header') words='' ;;
        'spark search --regex') words='' ;;
        'spark search --from-offset') words='' ;;
        'spark search --to-offset') words='' ;;
        'spark search --from-time') words='' ;;
        'spark search --to-time') words='' ;;
        'spark search --isolation') words='read_uncommitted read_committed' ;;
        'spark search --values') words='text base64 hex redacted none' ;;
        'spark search --limit') words='' ;;
        'spark search --replicas') words='' ;;
        'spark search --max-batch-bytes') words='' ;;
        'spark search --master') words='' ;;
        'spark search --conf') words='' ;;
        'spark search --ship') words='' ;;
        'spark export --topic') words='' ;;
        'spark export --partition') words='' ;;
        'spark export --output-path') words='' ;;
        'spark export --format') words='parquet jsonl' ;;
        'spark export --from-offset') words='' ;;
        'spark export --to-offset') words='' ;;
        'spark export --from-time') words='' ;;
        'spark export --to-time') words='' ;;
        'spark export --isolation') words='read_uncommitted read_committed' ;;
        'spark export --replicas') words='' ;;
        'spark export --file-size') words='' ;;
        'spark export --max-batch-bytes') words='' ;;
        'spark export --master') words='' ;;
        'spark export --conf') words='' ;;
        'spark export --ship') words='' ;;
        'spark compact --topic') words='' ;;
        'spark compact --partition') words='' ;;
        'spark compact --output-path') words='' ;;
        'spark compact --format') words='parquet jsonl log' ;;
        'spark compact --replicas') words='' ;;
        'spark compact --file-size') words='' ;;
        'spark compact --policy') words='' ;;
        'spark compact --metadata') words='' ;;
        'spark compact --min-dirty-ratio') words='' ;;
        'spark compact --delete-retention') words='' ;;
        'spark compact --min-lag') words='' ;;
        'spark compact --segment-size') words='' ;;
        'spark compact --index-size') words='' ;;
        'spark compact --index-interval') words='' ;;
        'spark compact --map-memory') words='' ;;
        'spark compact --producer-expiration') words='' ;;
        'spark compact --now') words='' ;;
        'spark compact --max-batch-bytes') words='' ;;
        'spark compact --master') words='' ;;
        'spark compact --conf') words='' ;;
        'spark compact --ship') words='' ;;
        *) value= ;;
    esac
    if [[ -z $value ]]; then
        case "$command" in
            '') words='describe dump lookup verify recover truncate compact apply undo plans spark --version -h --help' ;;
            describe) words='--topic --partition --deep --output --quiet -h --help' ;;
            dump) words='--files --topic --partition --output --to --deep-iteration --print-data-log --skip-record-metadata --verify-index-only --index-sanity-check --max-bytes --max-message-size --offsets-decoder --transaction-log-decoder --cluster-metadata-decoder --remote-log-metadata-decoder --share-group-state-decoder --with-indexes --as --from-offset --to-offset --from-time --to-time --key --keys-from --limit --isolation --tail --no-control --batches --values --jobs --max-batch-bytes --quiet -h --help' ;;
            lookup) words='--offset --timestamp --batch --topic --partition --position-only --output --quiet -h --help' ;;
            verify) words='--topic --partition --deep --sample --since --output --jobs --max-batch-bytes --quiet -h --help' ;;
            recover) words='--topic --partition --like-broker --salvage --apply --plan --backup --indexes-only --from-recovery-point --repair-bits --mark-clean --broker-epoch --rescue-records --index-interval --segment-index-bytes --producer-expiration --now --output --jobs --quiet -h --help' ;;
            truncate) words='--to-offset --to-timestamp --to-log-start --topic --partition --apply --plan --backup --index-interval --producer-expiration --now --output --quiet -h --help' ;;
            compact) words='--topic --partition --apply --plan --backup --to --estimate --explain --policy --metadata --all --min-dirty-ratio --delete-retention --min-lag --segment-size --index-size --index-interval --map-memory --like-broker --rules --producer-expiration --now --output --jobs --quiet -h --help' ;;
            apply) words='--backup --output --quiet -h --help' ;;
            undo) words='--apply --backup --output --quiet -h --help' ;;
            plans) words='--output --quiet -h --help' ;;
            spark) words='verify stats search export compact -h --help' ;;
            'spark verify') words='--topic --partition --deep --output --max-batch-bytes --master --conf --ship --quiet -h --help' ;;
            'spark stats') words='--topic --partition --output --max-batch-bytes --master --conf --ship --quiet -h --help' ;;
            'spark search') words='--topic --partition --key --keys-from --header --regex --from-offset --to-offset --from-time --to-time --isolation --values --limit --replicas --max-batch-bytes --master --conf --ship --quiet -h --help' ;;
            'spark export') words='--topic --partition --output-path --format --from-offset --to-offset --from-time --to-time --isolation --replicas --file-size --max-batch-bytes --master --conf --ship --quiet -h --help' ;;
            'spark compact') words='--topic --partition --output-path --format --replicas --file-size --policy --metadata --all --min-dirty-ratio --delete-retention --min-lag --segment-size --index-size --index-interval --map-memory --producer-expiration --now --max-batch-bytes --master --conf --ship --quiet -h --help' ;;
        esac
        # options only where one begins; otherwise paths, which `-o default` completes
        [[ $words == -* && $cur != -* ]] && words=
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -o default -F _klog klog
