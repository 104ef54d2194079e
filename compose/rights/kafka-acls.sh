#!/bin/sh
# The rights of a pipeline's principals at Kafka, as an administrator gives them: SECURITY.md says what each is for.
#   sh kafka-acls.sh BROKERS ADMIN.properties
# ADMIN.properties has the administrator's login. KAFKA_ACLS names Kafka's tool where it is not on the path. Rights that
# are there already are left as they are. A second schema needs the lines of "tables" once more.
set -eu
brokers=$1
login=$2
name=shop
tables=$name.public.

allow() {
  principal=$1
  operations=$(printf -- '--operation %s ' $2)
  pattern=$3
  shift 3
  # shellcheck disable=SC2086  # words of their own
  ${KAFKA_ACLS:-kafka-acls.sh} --bootstrap-server "$brokers" --command-config "$login" --add \
    --allow-principal "User:${name}_$principal" $operations --resource-pattern-type "$pattern" "$@"
}

# cdc run. Where a wildcard of [source] tables takes new tables, it makes topics: give it Create on the tables, too.
allow capture 'Write Read DescribeConfigs' prefixed --topic "$tables"
allow capture 'Write Read DescribeConfigs' literal --topic "$name.state" --topic "$name.schema" --topic "$name.progress"
allow capture 'Write DescribeConfigs' literal --topic "$name.dead"
allow capture 'Write Read DescribeConfigs Create' prefixed --topic "$name.outbox."
allow capture 'Read' literal --group cdc-reader

# cdc init, snapshot, check, status, events and dead.
allow operator 'Write Read DescribeConfigs Create' prefixed --topic "$tables"
allow operator 'Write Read DescribeConfigs Create' literal --topic "$name.state" --topic "$name.schema" --topic "$name.dead"
allow operator 'Read DescribeConfigs Create' literal --topic "$name.progress"
allow operator 'Read' literal --group cdc-reader

allow operator 'Read DescribeConfigs' literal --topic "$name.views"
allow operator 'Read DescribeConfigs' prefixed --topic "$name.outbox." --topic "$name.view." --topic "$name.stream."

# cdc sink, verify and wait.
allow sinks 'Read DescribeConfigs' prefixed --topic "$tables" --topic "$name.view." --topic "$name.stream."
allow sinks 'Read' literal --topic "$name.state" --topic "$name.schema" --topic "$name.progress"
allow sinks 'Read DescribeConfigs' literal --topic "$name.views"
allow sinks 'Write Read' literal --topic "$name.dead"
allow sinks 'Read' literal --group cdc-reader --group cdc-sink

# cdc view run and cdc stream run. Their transactional ids are their topics' names.
allow views 'Read DescribeConfigs' prefixed --topic "$tables" --topic "$name.outbox."
allow views 'Read' literal --topic "$name.state" --topic "$name.schema" --topic "$name.progress" --topic "$name.dead"
allow views 'Write Read DescribeConfigs Create' literal --topic "$name.views"
allow views 'Write Read DescribeConfigs Create' prefixed --topic "$name.view." --topic "$name.stream."
allow views 'Write' prefixed --transactional-id "$name.view." --transactional-id "$name.stream."
allow views 'Read' literal --group cdc-reader --group cdc-sink --group cdc-frame
