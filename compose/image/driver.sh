#!/bin/sh
# The sinks' driver in a pod, as Spark's cluster mode on Kubernetes asks for it: the variables are Spark's.
set -eu
JAVA_HOME="$(python -c 'from cdc.jvm.java import java_home; print(java_home())')"
# The words behind the program are those of cdc sink, which knows the jars that these sinks need of Spark.
jars_of_sinks() {
  while [ $# -gt 0 ] && [ "${1##*/}" != sink.py ]; do shift; done
  [ $# -eq 0 ] || shift
  python -m cdc sink --jars "$@"
}
jars="$(jars_of_sinks "$@")"
# Executors have them at the same places.
jars="$(printf '%s' "$jars" | sed 's|[^,]\{1,\}|local://&|g')"
export JAVA_HOME
[ "${1-}" = driver ] && shift
spark-submit --deploy-mode client --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --jars "$jars" "$@" &
java=$!
# The wish to stop comes to this process alone. The application, a child of Java, ends between two batches.
stop() {
  for status in $(grep -lsx "PPid:[[:space:]]*$java" /proc/[0-9]*/status); do
    process="${status#/proc/}"
    kill -TERM "${process%/status}" 2>/dev/null || true
  done
}
trap stop TERM
# A signal ends a wait, and not what is waited for.
until code=0; wait "$java" || code=$?; [ "$code" -ne 143 ]; do :; done
exit "$code"
